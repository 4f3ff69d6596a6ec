#include "gantry/schedule/drawing.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace gantry::schedule {

std::string label_of(const Action& action, bool with_stage) {
  return with_stage || action.is_extra() ? to_string(action)
                                         : to_string(action.kind) + std::to_string(action.microbatch);
}

bool has_several_stages_a_rank(const Simulation& simulation) {
  return std::ranges::any_of(simulation.timeline, [](const auto& lane) {
    return std::ranges::any_of(lane, [&](const auto& timed) { return timed.action.stage != lane[0].action.stage; });
  });
}

std::string describe(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kInputGradient:
      return "input gradient";
    case ActionKind::kWeightGradient:
      return "weight gradient";
    case ActionKind::kUnshard:
      return "gather of parameters";
    case ActionKind::kReshard:
      return "release of parameters";
    case ActionKind::kReduceGradient:
      return "reduction of gradients";
    case ActionKind::kOffload:
      return "activations to the host";
    case ActionKind::kReload:
      return "activations from the host";
    case ActionKind::kOffloadState:
      return "optimizer state to the host";
    case ActionKind::kReloadState:
      return "optimizer state from the host";
    case ActionKind::kEmbeddingForward:
      return "embedding lookup";
    case ActionKind::kEmbeddingBackward:
      return "embedding gradients";
    case ActionKind::kHeadForward:
      return "logits";
    case ActionKind::kHeadCombine:
      return "combination of the input gradients of the head";
    case ActionKind::kHeadBackward:
      return "head gradients";
    default:
      return "message";
  }
}

std::vector<ActionKind> kinds_drawn(const Simulation& simulation) {
  std::set<ActionKind> kinds;
  for (const auto& lane : simulation.timeline)
    for (const auto& timed : lane) kinds.insert(timed.action.kind);
  for (const auto& lane : simulation.extra)
    for (const auto& timed : lane)
      if (timed.end > timed.start) kinds.insert(timed.action.kind);
  return {kinds.begin(), kinds.end()};
}

double last_end(const Simulation& simulation) {
  double end = 0;
  for (const auto& lane : simulation.timeline)
    if (!lane.empty()) end = std::max(end, lane.back().end);
  for (const auto& lane : simulation.extra)
    for (const auto& timed : lane) end = std::max(end, timed.end);
  return end;
}

bool has_extra_lane(const Simulation& simulation) {
  return std::ranges::any_of(simulation.extra, [](const auto& lane) { return !lane.empty(); });
}

double shortest_duration(const Simulation& simulation) {
  double shortest = 0;
  for (const auto& lane : simulation.timeline)
    for (const auto& [action, start, end] : lane)
      if (end > start && (shortest == 0 || end - start < shortest)) shortest = end - start;
  return shortest;
}

std::string number(double value) { return fmt::format("{:.6g}", value); }

std::string figures(const Simulation& simulation) {
  return fmt::format("{} ranks, makespan {}, bubble {:.1f}%", simulation.timeline.size(),
                     number(simulation.makespan_global), 100 * simulation.bubble_rate);
}

}  // namespace gantry::schedule
