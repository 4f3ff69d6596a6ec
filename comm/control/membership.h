// The ranks that take part in an elastic job: the lost replicas, the replicas that wait to join, and the
// number of changes.
//
// A "generation" is a period in which the set of ranks stays the same. The launch counts generations from 0.
#pragma once

#include <set>
#include <vector>

namespace gantry {

// The requirements of an elastic job on its launch.
struct ElasticPolicy {
  int min_replicas = 1;
  bool rejoin = true;
  double heartbeat_seconds = 1;
  std::vector<int> replicas;  // per rank: its replica

  double lost_after_seconds() const { return 5 * heartbeat_seconds; }
};

// The ranks of a generation, ascending: ranks[i] is rank i of its world.
struct JobMembers {
  int generation = 0;
  std::vector<int> ranks;
};

class Membership {
 public:
  explicit Membership(ElasticPolicy policy);

  const ElasticPolicy& policy() const { return policy_; }
  const std::set<int>& ranks() const { return ranks_; }
  int generation() const { return generation_; }
  JobMembers members() const { return {generation_, {ranks_.begin(), ranks_.end()}}; }
  // Returns all ranks of the replica of `rank`.
  std::set<int> replica_of(int rank) const;

  // Removes the replica of the member `rank`. Returns false, without a change, if fewer than min_replicas
  // would be left.
  bool lose(int rank);
  // wait(): a rank that is not a member waits to join. give_up(): it ended before it joined.
  void wait(int rank) { waiting_.insert(rank); }
  void give_up(int rank) { waiting_.erase(rank); }
  // True if all ranks of a lost replica wait.
  bool can_grow() const { return !complete().empty(); }
  // Adds the waiting replicas that are complete, and begins a generation.
  void grow();

 private:
  std::set<int> complete() const;

  const ElasticPolicy policy_;
  std::set<int> ranks_, waiting_;
  int generation_ = 0;
};

}  // namespace gantry
