// Time limits of a rank that waits for others, until it prints a warning and until the job ends; and the
// failure that ends all waits.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "gantry/core/error.h"

namespace gantry {

struct WaitLimits {
  double timeout_seconds = 60;  // after this time the job ends with PeerError
  double notice_seconds = 15;   // after this time a warning names the awaited ranks, if the deadline is later
};

// Returns the error of a wait that reached its deadline; parameters as in ended_early_text().
std::string deadline_text(const std::string& who, double seconds, const std::string& what);

// Returns the error of a wait that cannot end: `who` waits for `what` ("all_reduce of float32 [4], which rank
// 1 has not joined"), and `ended` has ended its work.
std::string ended_early_text(const std::string& who, const std::string& what, const std::string& ended);

// The first known failure; later ones are dropped. May be called from any thread.
class FirstFailure {
 public:
  // Returns true if this is the first failure.
  bool set(int exit_code, const std::string& cause);
  bool is_set() const { return is_set_.load(std::memory_order_acquire); }
  // Throws PeerError with the cause. Inline, because waiting threads call it repeatedly.
  void throw_if_set() const {
    if (is_set()) throw PeerError(cause());
  }
  std::string cause() const;
  int exit_code() const;

 private:
  mutable std::mutex mutex_;  // guards the following two
  std::string cause_;
  int exit_code_ = 0;
  std::atomic<bool> is_set_{false};  // set last
};

// Warnings on stderr about long waits, which name the stuck rank before the job fails. May be called from any
// rank's thread.
class SlowWaitNotices {
 public:
  explicit SlowWaitNotices(const WaitLimits& limits) : limits_(limits) {}
  // Returns the waiting time after which say() is due. Infinite if the deadline is earlier, or after kMost
  // warnings.
  double due_seconds() const;
  // Prints "warning: <who> has waited <seconds> s for <what>; ..."
  void say(const std::string& who, double seconds, const std::string& what);

 private:
  static constexpr int kMost = 8;  // a run that is merely slow must not fill its log
  const WaitLimits limits_;
  std::atomic<int> said_{0};
};

}  // namespace gantry
