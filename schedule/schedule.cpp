#include "gantry/schedule/schedule.h"

#include <algorithm>

namespace gantry::schedule {
namespace {

template <class Predicate>
Schedule keep_actions(const Schedule& schedule, Predicate keep) {
  Schedule kept = schedule;
  for (auto& row : kept.actions) std::erase_if(row, [&](const Action& action) { return !keep(action); });
  return kept;
}

}  // namespace

int Schedule::stages() const {
  int highest = -1;
  for (const auto& held : stages_of_rank)
    for (const int stage : held) highest = std::max(highest, stage);
  return highest + 1;
}

bool Schedule::has_pairs() const {
  return std::ranges::any_of(actions, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& action) { return action.overlaps_next; });
  });
}

int Schedule::rank_of(int stage) const {
  for (std::size_t rank = 0; rank < stages_of_rank.size(); ++rank)
    if (std::ranges::find(stages_of_rank[rank], stage) != stages_of_rank[rank].end()) return static_cast<int>(rank);
  return -1;
}

Schedule forward_only(const Schedule& schedule) {
  Schedule forwards = keep_actions(schedule, [](const Action& action) {
    return action.kind == ActionKind::kForward || action.kind == ActionKind::kEmbeddingForward ||
           action.kind == ActionKind::kHeadForward;
  });
  for (auto& row : forwards.actions)
    for (auto& action : row) action.overlaps_next = false;
  return forwards;
}

Schedule first_microbatches(Schedule schedule, int microbatches) {
  if (microbatches >= schedule.microbatches) return schedule;
  schedule.microbatches = microbatches;
  for (auto& row : schedule.actions) {
    // If one action of a pair is removed, the other one runs alone.
    for (std::size_t i = 0; i + 1 < row.size(); ++i)
      if (row[i].overlaps_next && (row[i].microbatch >= microbatches || row[i + 1].microbatch >= microbatches))
        row[i].overlaps_next = false;
    std::erase_if(row, [&](const Action& action) { return action.microbatch >= microbatches; });
  }
  return schedule;
}

bool is_lowered(const Schedule& schedule) {
  return std::ranges::any_of(schedule.actions, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& action) { return action.is_message(); });
  });
}

Schedule compute_only(const Schedule& schedule) {
  return keep_actions(schedule, [](const Action& action) { return action.is_compute(); });
}

Schedule without_messages(const Schedule& schedule) {
  return keep_actions(schedule, [](const Action& action) { return !action.is_message(); });
}

}  // namespace gantry::schedule
