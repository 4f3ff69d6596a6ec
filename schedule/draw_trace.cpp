#include <nlohmann/json.hpp>

#include "gantry/schedule/drawing.h"
#include "gantry/schedule/measured.h"

namespace gantry::schedule {
namespace {

constexpr double kMicrosecondsPerUnit = 1000;
constexpr std::size_t kExtraLane = 1'000'000;  // thread numbers of extra actions, after those of computations

nlohmann::json rank_name(int process, std::size_t rank, std::size_t thread, const char* what) {
  return {{"name", "thread_name"},
          {"ph", "M"},
          {"pid", process},
          {"tid", thread},
          {"args", {{"name", "rank " + std::to_string(rank) + what}}}};
}

nlohmann::json event(int process, std::size_t rank, const TimedAction& timed, bool with_stage) {
  const auto& [action, start, end] = timed;
  return {{"name", label_of(action, with_stage)},
          {"cat", describe(action.kind)},
          {"ph", "X"},
          {"pid", process},
          {"tid", rank},
          {"ts", start * kMicrosecondsPerUnit},
          {"dur", (end - start) * kMicrosecondsPerUnit},
          {"args", {{"stage", action.stage}, {"microbatch", action.microbatch}}}};
}

void append_events(nlohmann::json& events, int process, const Simulation& simulation) {
  const bool with_stage = has_several_stages_a_rank(simulation);
  for (std::size_t rank = 0; rank < simulation.timeline.size(); ++rank) {
    events.push_back(rank_name(process, rank, rank, ""));
    for (const auto& timed : simulation.timeline[rank]) events.push_back(event(process, rank, timed, with_stage));
    if (simulation.extra.empty() || simulation.extra[rank].empty()) continue;
    events.push_back(rank_name(process, rank, kExtraLane + rank, ", extra actions"));
    for (const auto& timed : simulation.extra[rank])
      events.push_back(event(process, kExtraLane + rank, timed, /*with_stage=*/true));
  }
}

std::string trace_of(nlohmann::json events) {
  return nlohmann::json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

nlohmann::json process_name(int process, const char* name) {
  return {{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"args", {{"name", name}}}};
}

}  // namespace

std::string draw_chrome_trace(const Simulation& simulation) {
  auto events = nlohmann::json::array();
  append_events(events, 0, simulation);
  return trace_of(std::move(events));
}

std::string draw_chrome_trace_comparison(const Simulation& measured, const Simulation& simulated) {
  auto events = nlohmann::json::array({process_name(0, "measured"), process_name(1, "simulated")});
  append_events(events, 0, measured);
  append_events(events, 1, simulated);
  return trace_of(std::move(events));
}

}  // namespace gantry::schedule
