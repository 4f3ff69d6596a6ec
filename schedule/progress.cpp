#include "gantry/schedule/progress.h"

#include <algorithm>

#include "gantry/core/error.h"

namespace gantry::schedule {
namespace {

class Progress {
 public:
  Progress(const Schedule& schedule, const ActionTable& table, const std::vector<int>& rank_of_stage,
           const VocabularyNeeds* vocabulary)
      : schedule_(schedule),
        table_(table),
        rank_of_stage_(rank_of_stage),
        vocabulary_(vocabulary),
        lowered_(is_lowered(schedule)),
        next_(schedule.ranks(), 0) {}

  void run() {
    std::vector<int> to_try(schedule_.ranks());
    for (int rank = 0; rank < schedule_.ranks(); ++rank) to_try[rank] = rank;
    while (!to_try.empty()) {
      const int rank = to_try.back();
      to_try.pop_back();
      while (!finished(rank) && !awaited_by(rank)) step(rank, to_try);
    }
    for (int rank = 0; rank < schedule_.ranks(); ++rank)
      if (!finished(rank)) refuse_cycle(rank);
  }

 private:
  const std::vector<Action>& row(int rank) const { return schedule_.actions[rank]; }
  const Action& current(int rank) const { return row(rank)[next_[rank]]; }
  bool finished(int rank) const { return next_[rank] == static_cast<int>(row(rank).size()); }
  bool done(const Action& action) const { return table_.position(action) < next_[rank_of_stage_[action.stage]]; }

  std::optional<Action> awaited_by(int rank) const;
  std::optional<Action> awaited_data(const Action& action) const;
  void step(int rank, std::vector<int>& to_try);
  [[noreturn]] void refuse_cycle(int blocked_rank) const;

  const Schedule& schedule_;
  const ActionTable& table_;
  const std::vector<int>& rank_of_stage_;
  const VocabularyNeeds* vocabulary_;
  bool lowered_;
  std::vector<int> next_;  // by rank, its current position
};

// The action on another rank that the rank's current action waits for; nothing if it can run.
std::optional<Action> Progress::awaited_by(int rank) const {
  const Action& action = current(rank);
  if (action.is_message()) {
    const Action other = matching_message(action);
    if (vocabulary_) return is_send(action.kind) || done(other) ? std::nullopt : std::optional(other);
    const bool reached = table_.position(other) == next_[rank_of_stage_[other.stage]];
    return reached ? std::nullopt : std::optional(other);
  }
  if (vocabulary_)
    for (const Need& need : vocabulary_->of(action)) {
      const bool is_met =
          need.begun ? table_.position(need.action) <= next_[rank_of_stage_[need.action.stage]] : done(need.action);
      if (!is_met) return need.action;
    }
  // The receives of a lowered row precede the action on the same rank; the check of the order has verified that.
  if (lowered_) return std::nullopt;
  for (int i = 0; i < width_at(row(rank), next_[rank]); ++i)
    if (const auto awaited = awaited_data(row(rank)[next_[rank] + i])) return awaited;
  return std::nullopt;
}

std::optional<Action> Progress::awaited_data(const Action& action) const {
  const int stage = stage_needed_by(action, static_cast<int>(rank_of_stage_.size()));
  if (stage < 0) return std::nullopt;
  Action needed{action.kind, stage, action.microbatch};
  if (is_backward(action.kind)) {
    needed.kind = ActionKind::kBackward;
    if (!table_.has(needed)) needed.kind = ActionKind::kInputGradient;
  }
  return done(needed) ? std::nullopt : std::optional(needed);
}

// Executes the current action and records the ranks that may have waited for it.
void Progress::step(int rank, std::vector<int>& to_try) {
  const Action action = current(rank);
  if (vocabulary_) {
    ++next_[rank];  // only with overlapped pairs several ranks may have waited
    for (int other = 0; other < schedule_.ranks(); ++other)
      if (other != rank) to_try.push_back(other);
    return;
  }
  if (action.is_message()) {
    const int peer = rank_of_stage_[matching_message(action).stage];
    ++next_[rank];
    ++next_[peer];
    to_try.push_back(peer);
    return;
  }
  const int width = width_at(row(rank), next_[rank]);
  for (int i = 0; i < width; ++i) {
    const Action& part = row(rank)[next_[rank] + i];
    if (const auto send = send_after(part, rank_of_stage_); send && !lowered_)
      to_try.push_back(rank_of_stage_[matching_message(*send).stage]);
  }
  next_[rank] += width;
}

// A blocked rank waits for an action that another rank has not reached, so that rank is blocked too. Following these
// ranks therefore leads to a cycle.
void Progress::refuse_cycle(int blocked_rank) const {
  std::vector<int> chain;
  int rank = blocked_rank;
  while (std::ranges::find(chain, rank) == chain.end()) {
    chain.push_back(rank);
    rank = rank_of_stage_[awaited_by(rank)->stage];
  }
  chain.erase(chain.begin(), std::ranges::find(chain, rank));
  std::string waits;
  for (const int each : chain) {
    const Action awaited = *awaited_by(each);
    waits += (waits.empty() ? "" : ", ") + std::string("rank ") + std::to_string(each) + " at position " +
             std::to_string(next_[each]) + ", " + to_string(current(each)) + ", waits for " + to_string(awaited) +
             " at position " + std::to_string(table_.position(awaited)) + " on rank " +
             std::to_string(rank_of_stage_[awaited.stage]);
  }
  throw ConfigError(
      {"schedule " + schedule_.name, "deadlock: " + waits,
       lowered_ ? "an order in which every send meets its receive" : "an order in which data arrives before its use",
       lowered_ ? "leave the messages out, and Gantry places them" : ""});
}

}  // namespace

void prove_progress(const Schedule& schedule, const ActionTable& table, const std::vector<int>& rank_of_stage,
                    const VocabularyNeeds* vocabulary) {
  Progress(schedule, table, rank_of_stage, vocabulary).run();
}

}  // namespace gantry::schedule
