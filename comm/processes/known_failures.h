// The failures of a job that a rank knows, and the ranks that have ended.
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
  // The one that the control plane makes known, of this rank or another one.
  void hear(const JobFailure& failure);
  std::optional<JobFailure> known() const;
  // By hear(), before this rank found anything itself.
  bool failed_elsewhere() const { return elsewhere_.load(std::memory_order_acquire); }

  bool failed() const { return first_.is_set(); }
  void throw_if_failed() const { first_.throw_if_set(); }

  // The ranks' bodies have returned: waits for them end, once what they sent before must have come.
  void note_ended(const std::vector<int>& ranks);
  bool some_ended() const;
  // Returns one of those ranks whose messages must have come; -1 if there is none.
  int find_ended(const std::vector<int>& ranks) const;

 private:
  FirstFailure first_;
  std::atomic<bool> elsewhere_{false};
  mutable std::mutex mutex_;
  std::optional<JobFailure> known_;
  std::map<int, std::chrono::steady_clock::time_point> ended_at_;  // when this rank heard of it, by world rank
};

}  // namespace gantry
