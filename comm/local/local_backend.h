// Ranks as threads of one process. A tensor of hand_over() becomes the receiver's without a copy. Collectives
// read the memory of the other ranks.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gantry/comm/wait_limits.h"
#include "gantry/comm/world.h"

namespace gantry {

class LocalGroupState;

// The state that the rank threads of a job share: the first failure, and the shared halves of their groups.
//
// Shared between threads: `groups_` is guarded by `mutex_`; the flags of ended ranks are atomic.
class LocalJob {
 public:
  LocalJob(int ranks, const WaitLimits& limits, std::function<std::string(int)> describe_rank);

  int ranks() const { return ranks_; }
  double timeout_seconds() const { return timeout_seconds_; }
  SlowWaitNotices& notices() { return notices_; }
  std::string describe_rank(int rank) const { return describe_rank_(rank); }
  bool crowded() const { return crowded_; }  // more ranks than cores: waits must not spin

  // Ends the pending and later operations of every rank. The first cause counts; later ones are dropped.
  void fail(int exit_code, const std::string& cause);
  const FirstFailure& failure() const { return failure_; }
  bool failed() const { return failure_.is_set(); }
  void throw_if_failed() const { failure_.throw_if_set(); }  // PeerError with the first cause

  // The rank's body has returned, so waits for this rank end.
  void note_ended(int rank);
  bool some_ended() const { return some_ended_.load(std::memory_order_acquire); }
  bool has_ended(int rank) const { return ended_[rank].load(std::memory_order_acquire); }

  // Returns the shared half of the n-th group that `rank` makes of these ranks.
  std::shared_ptr<LocalGroupState> group_state(const std::string& label, const std::vector<int>& ranks, int n);

 private:
  void wake_all();

  const int ranks_;
  const double timeout_seconds_;
  SlowWaitNotices notices_;
  const std::function<std::string(int)> describe_rank_;
  const bool crowded_;
  std::mutex mutex_;
  FirstFailure failure_;
  std::vector<std::atomic<bool>> ended_;
  std::atomic<bool> some_ended_{false};
  std::map<std::pair<std::vector<int>, int>, std::shared_ptr<LocalGroupState>> groups_;
};

class LocalBackend final : public Backend {
 public:
  LocalBackend(LocalJob& job, int rank) : job_(job), rank_(rank) {}

  const char* name() const override { return "local"; }
  int rank() const override { return rank_; }
  int size() const override { return job_.ranks(); }
  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override;
  void abort(const std::string& reason) override;
  bool has_ended(int rank) const override;

 private:
  LocalJob& job_;
  int rank_;
  std::map<std::vector<int>, int> made_;  // number of groups of these ranks that this rank has made
};

}  // namespace gantry
