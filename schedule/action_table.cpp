#include "gantry/schedule/action_table.h"

#include <tuple>

namespace gantry::schedule {
namespace {

bool on_different_ranks(int stage, int neighbour, const std::vector<int>& rank_of_stage) {
  const int stages = static_cast<int>(rank_of_stage.size());
  return neighbour >= 0 && neighbour < stages && rank_of_stage[stage] != rank_of_stage[neighbour];
}

}  // namespace

std::vector<int> ranks_by_stage(const Schedule& schedule) {
  std::vector<int> ranks(schedule.stages(), -1);
  for (std::size_t rank = 0; rank < schedule.stages_of_rank.size(); ++rank)
    for (const int stage : schedule.stages_of_rank[rank]) ranks[stage] = static_cast<int>(rank);
  return ranks;
}

int width_at(const std::vector<Action>& row, int position) { return row[position].overlaps_next ? 2 : 1; }

Action matching_message(const Action& message) {
  switch (message.kind) {
    case ActionKind::kSendForward:
      return {ActionKind::kRecvForward, message.stage + 1, message.microbatch};
    case ActionKind::kRecvForward:
      return {ActionKind::kSendForward, message.stage - 1, message.microbatch};
    case ActionKind::kSendBackward:
      return {ActionKind::kRecvBackward, message.stage - 1, message.microbatch};
    default:
      return {ActionKind::kSendBackward, message.stage + 1, message.microbatch};
  }
}

std::optional<Action> send_after(const Action& action, const std::vector<int>& rank_of_stage) {
  const auto [kind, stage, microbatch] = std::tuple(action.kind, action.stage, action.microbatch);
  if (kind == ActionKind::kForward && on_different_ranks(stage, stage + 1, rank_of_stage))
    return Action{ActionKind::kSendForward, stage, microbatch};
  if (is_backward(kind) && on_different_ranks(stage, stage - 1, rank_of_stage))
    return Action{ActionKind::kSendBackward, stage, microbatch};
  return std::nullopt;
}

std::optional<Action> receive_before(const Action& action, const std::vector<int>& rank_of_stage) {
  const auto [kind, stage, microbatch] = std::tuple(action.kind, action.stage, action.microbatch);
  if (kind == ActionKind::kForward && on_different_ranks(stage, stage - 1, rank_of_stage))
    return Action{ActionKind::kRecvForward, stage, microbatch};
  if (is_backward(kind) && on_different_ranks(stage, stage + 1, rank_of_stage))
    return Action{ActionKind::kRecvBackward, stage, microbatch};
  return std::nullopt;
}

int stage_needed_by(const Action& action, int stages) {
  if (action.kind == ActionKind::kForward) return action.stage - 1;
  if (is_backward(action.kind)) return action.stage + 1 < stages ? action.stage + 1 : -1;
  return -1;
}

}  // namespace gantry::schedule
