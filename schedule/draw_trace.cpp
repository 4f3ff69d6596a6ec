#include <nlohmann/json.hpp>

#include "gantry/schedule/drawing.h"

namespace gantry::schedule {
namespace {

constexpr double kMicrosecondsPerUnit = 1000;

nlohmann::json rank_name(std::size_t rank) {
  return {{"name", "thread_name"},
          {"ph", "M"},
          {"pid", 0},
          {"tid", rank},
          {"args", {{"name", "rank " + std::to_string(rank)}}}};
}

nlohmann::json event(std::size_t rank, const TimedAction& timed, bool with_stage) {
  const auto& [action, start, end] = timed;
  return {{"name", label_of(action, with_stage)},
          {"cat", describe(action.kind)},
          {"ph", "X"},
          {"pid", 0},
          {"tid", rank},
          {"ts", start * kMicrosecondsPerUnit},
          {"dur", (end - start) * kMicrosecondsPerUnit},
          {"args", {{"stage", action.stage}, {"microbatch", action.microbatch}}}};
}

}  // namespace

std::string draw_chrome_trace(const Simulation& simulation) {
  const bool with_stage = has_several_stages_a_rank(simulation);
  auto events = nlohmann::json::array();
  for (std::size_t rank = 0; rank < simulation.timeline.size(); ++rank) {
    events.push_back(rank_name(rank));
    for (const auto& timed : simulation.timeline[rank]) events.push_back(event(rank, timed, with_stage));
  }
  return nlohmann::json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

}  // namespace gantry::schedule
