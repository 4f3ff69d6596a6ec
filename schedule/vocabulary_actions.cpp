#include "gantry/schedule/vocabulary_actions.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/schedule/action_table.h"

namespace gantry::schedule {
namespace {

[[noreturn]] void refuse(const Schedule& schedule, int rank, const std::string& what, const std::string& expected) {
  throw ConfigError({"schedule " + schedule.name + ", rank " + std::to_string(rank), what, expected, ""});
}

// The microbatches of the actions of one kind in a row, in their order.
std::vector<int> order_of(const std::vector<Action>& row, ActionKind kind, int stage) {
  std::vector<int> order;
  for (const Action& action : row)
    if (action.kind == kind && action.stage == stage) order.push_back(action.microbatch);
  return order;
}

std::vector<int> before_each(const std::vector<int>& order, int microbatches) {
  std::vector<int> before(microbatches, -1);
  for (std::size_t i = 1; i < order.size(); ++i) before[order[i]] = order[i - 1];
  return before;
}

}  // namespace

bool has_vocabulary(const Schedule& schedule) {
  return std::ranges::any_of(schedule.actions, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& action) { return is_of_vocabulary(action.kind); });
  });
}

int algorithm_of(const Schedule& schedule) {
  const bool combines = std::ranges::any_of(schedule.actions, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& action) { return action.kind == ActionKind::kHeadCombine; });
  });
  return combines ? 2 : 1;
}

int vocabulary_stage(const Schedule& schedule, int rank) { return std::ranges::min(schedule.stages_of_rank.at(rank)); }

VocabularyNeeds::VocabularyNeeds(const Schedule& schedule)
    : last_stage_(schedule.stages() - 1), algorithm_(algorithm_of(schedule)) {
  first_splits_.assign(schedule.microbatches, false);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    if (schedule.stages_of_rank[rank].empty())
      refuse(schedule, rank, "the rank holds no stage, but the schedule has vocabulary passes",
             "a stage on every rank");
    stage_of_rank_.push_back(vocabulary_stage(schedule, rank));
    for (const Action& action : schedule.actions[rank]) {
      trains_ = trains_ || is_backward(action.kind);
      if (action.kind == ActionKind::kInputGradient && action.stage == 0) first_splits_[action.microbatch] = true;
    }
  }
  check_counts(schedule);
  check_orders(schedule);
}

// Each pass must exist once per rank and microbatch.
void VocabularyNeeds::check_counts(const Schedule& schedule) const {
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    for (const ActionKind kind : kVocabularyKinds) {
      const bool is_backward_pass = kind != ActionKind::kEmbeddingForward && kind != ActionKind::kHeadForward;
      const bool is_left_out = (is_backward_pass && !trains_) || (kind == ActionKind::kHeadCombine && algorithm_ == 1);
      const auto expected = is_left_out ? 0 : schedule.microbatches;
      std::vector<char> seen(schedule.microbatches, 0);
      int count = 0;
      for (const Action& action : schedule.actions[rank]) {
        if (action.kind != kind) continue;
        if (action.stage != stage_of_rank_[rank])
          refuse(schedule, rank, to_string(action) + " is written with stage " + std::to_string(action.stage),
                 "the lowest stage of the rank, " + std::to_string(stage_of_rank_[rank]));
        count += seen[action.microbatch] == 0;
        seen[action.microbatch] = 1;
      }
      if (count != expected)
        refuse(schedule, rank,
               "the rank has " + std::to_string(count) + " actions of kind " + to_string(kind) + ", for " +
                   std::to_string(schedule.microbatches) + " microbatches",
               std::to_string(expected));
    }
}

// Messages of a kind must have the same order on all ranks.
void VocabularyNeeds::check_orders(const Schedule& schedule) {
  for (const ActionKind kind : kVocabularyKinds) {
    const auto first = order_of(schedule.actions[0], kind, stage_of_rank_[0]);
    for (int rank = 1; rank < schedule.ranks(); ++rank)
      if (order_of(schedule.actions[rank], kind, stage_of_rank_[rank]) != first)
        refuse(schedule, rank, "the actions " + to_string(kind) + " have a different order from those of rank 0",
               "one order of microbatches on all ranks");
    if (kind == ActionKind::kHeadForward) before_[0] = before_each(first, schedule.microbatches);
    if (kind == ActionKind::kEmbeddingBackward) before_[1] = before_each(first, schedule.microbatches);
  }
  // Messages from one rank to all others are sent in the order in which they are produced.
  const auto made_in_order = [&](int stage, ActionKind made, ActionKind split, ActionKind pass) {
    const int rank = schedule.rank_of(stage);
    std::vector<int> order;
    for (const Action& action : schedule.actions[rank])
      if ((action.kind == made || action.kind == split) && action.stage == stage) order.push_back(action.microbatch);
    if (order != order_of(schedule.actions[rank], pass, stage_of_rank_[rank]))
      refuse(schedule, rank,
             "the actions " + to_string(pass) + " have a different order from the actions that they need",
             "the order of " + to_string(made) + " in stage " + std::to_string(stage));
  };
  made_in_order(last_stage_, ActionKind::kForward, ActionKind::kForward, ActionKind::kHeadForward);
  if (trains_) made_in_order(0, ActionKind::kBackward, ActionKind::kInputGradient, ActionKind::kEmbeddingBackward);
}

std::vector<Need> VocabularyNeeds::of(const Action& action) const {
  std::vector<Need> needs;
  needs.reserve(stage_of_rank_.size());
  const int microbatch = action.microbatch;
  const auto all = [&](ActionKind kind) {
    for (const int stage : stage_of_rank_) needs.push_back({{kind, stage, microbatch}});
  };
  const auto begun = [&](int before) {
    if (before < 0) return;
    for (const int stage : stage_of_rank_)
      if (stage != action.stage) needs.push_back({{action.kind, stage, before}, /*begun=*/true});
  };
  switch (action.kind) {
    case ActionKind::kForward:
      if (action.stage == 0) all(ActionKind::kEmbeddingForward);
      break;
    case ActionKind::kHeadForward:
      needs.push_back({{ActionKind::kForward, last_stage_, microbatch}});
      begun(before_[0][microbatch]);
      break;
    case ActionKind::kHeadCombine:
    case ActionKind::kHeadBackward:
      all(ActionKind::kHeadForward);
      break;
    case ActionKind::kBackward:
    case ActionKind::kInputGradient:
      if (action.stage == last_stage_) all(algorithm_ == 1 ? ActionKind::kHeadBackward : ActionKind::kHeadCombine);
      break;
    case ActionKind::kEmbeddingBackward:
      needs.push_back(
          {{first_splits_[microbatch] ? ActionKind::kInputGradient : ActionKind::kBackward, 0, microbatch}});
      begun(before_[1][microbatch]);
      break;
    default:
      break;
  }
  return needs;
}

}  // namespace gantry::schedule
