// Checks that replicas with different rows reach their collectives in the same order.
#include <string>
#include <utility>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/schedule/action_table.h"
#include "gantry/schedule/parameter_actions.h"

namespace gantry::schedule {
namespace {

// Executes all replicas of all ranks as far as possible.
class Replicas {
 public:
  explicit Replicas(const std::vector<Schedule>& replicas) {
    for (const auto& replica : replicas) {
      lowered_.push_back(lower(replica));
      ranks_of_stages_.push_back(ranks_by_stage(lowered_.back()));
      next_.emplace_back(lowered_.back().ranks(), 0);
    }
  }

  void run() {
    if (lowered_.empty()) return;
    for (const auto& replica : lowered_)
      if (replica.stages_of_rank != lowered_.front().stages_of_rank)
        throw ConfigError({"schedule " + replica.name,
                           "the placement of the stages differs from that of the first replica", "the same placement",
                           "use one schedule for all replicas"});
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < lowered_.front().ranks(); ++rank)
        for (int replica = 0; replica < count(); ++replica)
          while (step(replica, rank)) moved = true;
    }
    for (int rank = 0; rank < lowered_.front().ranks(); ++rank)
      for (int replica = 0; replica < count(); ++replica)
        if (!finished(replica, rank)) refuse(replica, rank);
  }

 private:
  int count() const { return static_cast<int>(lowered_.size()); }
  const std::vector<Action>& row(int replica, int rank) const { return lowered_[replica].actions[rank]; }
  bool finished(int replica, int rank) const {
    return next_[replica][rank] == static_cast<int>(row(replica, rank).size());
  }
  const Action& current(int replica, int rank) const { return row(replica, rank)[next_[replica][rank]]; }
  static bool is_collective(const Action& action) {
    return action.kind == ActionKind::kUnshard || action.kind == ActionKind::kReduceGradient;
  }

  bool step(int replica, int rank) {
    if (finished(replica, rank)) return false;
    const Action& action = current(replica, rank);
    if (action.is_message()) return pass_message(replica, rank, action);
    if (is_collective(action)) return meet(rank, action);
    ++next_[replica][rank];  // its data are available: the messages of a lowered row precede it
    return true;
  }

  bool pass_message(int replica, int rank, const Action& action) {
    const Action other = matching_message(action);
    const int peer = ranks_of_stages_[replica][other.stage];
    if (finished(replica, peer) || current(replica, peer) != other) return false;
    ++next_[replica][rank];
    ++next_[replica][peer];
    return true;
  }

  bool meet(int rank, const Action& action) {
    for (int replica = 0; replica < count(); ++replica)
      if (finished(replica, rank) || current(replica, rank) != action) return false;
    for (int replica = 0; replica < count(); ++replica) ++next_[replica][rank];
    return true;
  }

  std::string place(int replica, int rank) const {
    return "replica " + std::to_string(replica) +
           (finished(replica, rank)
                ? " has finished"
                : " is at position " + std::to_string(next_[replica][rank]) + ", " + to_string(current(replica, rank)));
  }

  // The first rank that waits in a collective is the most informative; otherwise a message waits for such a rank.
  [[noreturn]] void refuse(int replica, int rank) const {
    for (int each = 0; each < lowered_.front().ranks(); ++each)
      for (int waiting = 0; waiting < count(); ++waiting) {
        if (finished(waiting, each) || !is_collective(current(waiting, each))) continue;
        for (int other = 0; other < count(); ++other)
          if (finished(other, each) || current(other, each) != current(waiting, each))
            throw ConfigError({"schedule " + lowered_[waiting].name + ", rank " + std::to_string(each),
                               "deadlock: " + place(waiting, each) + ", while " + place(other, each),
                               "the same gathers and reductions in the same order on all replicas",
                               "use the same number of microbatches for all replicas"});
      }
    throw ConfigError({"schedule " + lowered_[replica].name + ", rank " + std::to_string(rank),
                       "deadlock: " + place(replica, rank), "", ""});
  }

  std::vector<Schedule> lowered_;
  std::vector<std::vector<int>> ranks_of_stages_;
  std::vector<std::vector<int>> next_;  // by replica and rank, the current position
};

}  // namespace

void validate_replicas(const std::vector<Schedule>& replicas) { Replicas(replicas).run(); }

}  // namespace gantry::schedule
