// The failures of the job that this rank knows, and the ranks that have ended.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "gantry/comm/control/frames.h"
#include "gantry/comm/wait_limits.h"

namespace gantry {

// Shared between threads, and guarded by `mutex_`.
class KnownFailures {
 public:
  FirstFailure& first() { return first_; }
  // Called with the failure that the control plane reports, of this rank or of another one.
  void hear(const JobFailure& failure);
  std::optional<JobFailure> known() const;
  // True if hear() was called before this rank detected a failure itself.
  bool failed_elsewhere() const { return elsewhere_.load(std::memory_order_acquire); }

  bool failed() const { return first_.is_set(); }
  void throw_if_failed() const { first_.throw_if_set(); }

  // The bodies of these ranks have returned. Waits for them fail once their last messages must have arrived.
  void note_ended(const std::vector<int>& ranks);
  bool some_ended() const;
  // Returns one of these ranks that has ended and whose messages must have arrived; -1 if there is none.
  int find_ended(const std::vector<int>& ranks) const;

 private:
  FirstFailure first_;
  std::atomic<bool> elsewhere_{false};
  mutable std::mutex mutex_;
  std::optional<JobFailure> known_;
  std::map<int, std::chrono::steady_clock::time_point> ended_at_;  // time of the report, by world rank
};

}  // namespace gantry
