// How far a job's control plane has come, for threads that wait for it.
//
// Written by the control thread, read by those that wait; guarded by its mutex.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "gantry/comm/control/frames.h"

namespace gantry::control {

struct Progress {
  bool begun = false;             // all ranks have come
  bool ended = false;             // all ranks' work is done
  std::set<int> absent, working;  // rank 0's view: not come, not done; elsewhere what rank 0 answered
  std::string trouble;            // why rank 0 can't be reached, so far
  std::optional<JobFailure> failure;
};

class Milestones {
 public:
  // `change` runs under the lock.
  template <class Change>
  void update(const Change& change) {
    {
      const std::lock_guard lock(mutex_);
      change(progress_);
    }
    changed_.notify_all();
  }
  // Until `reached(progress)` or a failure, at most `seconds`; what is so then.
  template <class Reached>
  Progress wait(double seconds, const Reached& reached) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                      [&] { return progress_.failure || reached(progress_); });
    return progress_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Progress progress_;
};

}  // namespace gantry::control
