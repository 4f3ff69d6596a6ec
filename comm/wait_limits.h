// How long a rank waits for others, until it says so and until the job ends, and the failure that ends all waits.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "gantry/core/error.h"

namespace gantry {

struct WaitLimits {
  double timeout_seconds = 60;  // then the job ends with PeerError
  double notice_seconds = 15;   // then a line names who is waited for, where the deadline is later
};

// The failure of a wait at its deadline, as of the one below.
std::string deadline_text(const std::string& who, double seconds, const std::string& what);

// The failure of a wait that can't end: `who` waits for `what` ("all_reduce of float32 [4], which rank 1 has not
// joined"), and `ended` has ended its work.
std::string ended_early_text(const std::string& who, const std::string& what, const std::string& ended);

// The first failure that is known; later ones are dropped. Called from any thread.
class FirstFailure {
 public:
  // True where it is the first one.
  bool set(int exit_code, const std::string& cause);
  bool is_set() const { return is_set_.load(std::memory_order_acquire); }
  // PeerError with the cause. Here, since whoever waits asks again and again.
  void throw_if_set() const {
    if (is_set()) throw PeerError(cause());
  }
  std::string cause() const;
  int exit_code() const;

 private:
  mutable std::mutex mutex_;  // guards the following two
  std::string cause_;
  int exit_code_ = 0;
  std::atomic<bool> is_set_{false};  // last
};

// The lines of waits that have become long, on stderr: whoever is stuck is named while it may still go on. Called from
// any rank's thread.
class SlowWaitNotices {
 public:
  explicit SlowWaitNotices(const WaitLimits& limits) : limits_(limits) {}
  // Of waiting, until say() is due; infinite where the deadline comes first or enough was said.
  double due_seconds() const;
  // "warning: <who> has waited <seconds> s for <what>; ..."
  void say(const std::string& who, double seconds, const std::string& what);

 private:
  static constexpr int kMost = 8;  // a run that is merely slow must not fill its log
  const WaitLimits limits_;
  std::atomic<int> said_{0};
};

}  // namespace gantry
