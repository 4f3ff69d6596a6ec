#include "gantry/schedule/extra_actions.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/schedule/offload_actions.h"
#include "gantry/schedule/parameter_actions.h"

namespace gantry::schedule {

namespace {

double moving(double memory, const StageCosts& of) { return of.host_bandwidth > 0 ? memory / of.host_bandwidth : 0; }

}  // namespace

void prove_extra_actions(const Schedule& schedule) {
  prove_parameter_actions(schedule);
  prove_offload_actions(schedule);
}

ExtraCost extra_cost(const Action& action, const StageCosts& of) {
  switch (action.kind) {
    case ActionKind::kUnshard:
      return {.seconds = of.unshard, .bytes = of.unshard_bytes, .held_from_start = of.parameters};
    case ActionKind::kReshard:
      return {.released_at_start = of.parameters};
    case ActionKind::kReduceGradient:
      return {.seconds = of.reduce, .bytes = of.reduce_bytes, .released_at_end = of.gradients};
    case ActionKind::kOffload:
      return {.seconds = moving(of.activation, of), .released_at_end = of.activation};
    case ActionKind::kReload:
      return {.seconds = moving(of.activation, of), .held_from_start = of.activation};
    case ActionKind::kOffloadState:
      return {.seconds = moving(of.state, of), .released_at_end = of.state};
    case ActionKind::kReloadState:
      return {.seconds = moving(of.state, of), .held_from_start = of.state};
    default:
      return {};
  }
}

bool waits_for(const Action& computation, ActionKind extra) {
  return extra == ActionKind::kUnshard && needs_parameters(computation.kind);
}

bool has_extras(const Schedule& schedule) {
  return std::ranges::any_of(schedule.actions, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& action) { return action.is_extra(); });
  });
}

void refuse_extra(const Schedule& schedule, int rank, int position, const std::string& what,
                  const std::string& expected) {
  throw ConfigError({"schedule " + schedule.name + ", rank " + std::to_string(rank) + ", position " +
                         std::to_string(position) + ", " + to_string(schedule.actions[rank][position]),
                     what, expected, ""});
}

}  // namespace gantry::schedule
