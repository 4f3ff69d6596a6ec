#include "gantry/comm/wait_limits.h"

#include <fmt/format.h>
#include <limits>

#include "gantry/core/base/warning.h"

namespace gantry {

std::string deadline_text(const std::string& who, double seconds, const std::string& what) {
  return fmt::format("{} waited {} s for {}", who, seconds, what);
}

std::string ended_early_text(const std::string& who, const std::string& what, const std::string& ended) {
  return fmt::format(
      "{} waits for {}, but {} has ended its work; expected all ranks to make the same calls; find out why its body "
      "returned before the others'",
      who, what, ended);
}

double SlowWaitNotices::due_seconds() const {
  const bool is_off =
      limits_.notice_seconds >= limits_.timeout_seconds || said_.load(std::memory_order_relaxed) >= kMost;
  return is_off ? std::numeric_limits<double>::infinity() : limits_.notice_seconds;
}

bool FirstFailure::set(int exit_code, const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (is_set()) return false;
  cause_ = cause;
  exit_code_ = exit_code;
  is_set_.store(true, std::memory_order_release);
  return true;
}

std::string FirstFailure::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

int FirstFailure::exit_code() const {
  const std::lock_guard lock(mutex_);
  return exit_code_;
}

void SlowWaitNotices::say(const std::string& who, double seconds, const std::string& what) {
  const int before = said_.fetch_add(1, std::memory_order_relaxed);
  if (before >= kMost) return;
  const std::string line = fmt::format(
      "{} has waited {:.3g} s for {}; the job ends when the wait reaches {} s (comm.timeout_seconds){}", who, seconds,
      what, limits_.timeout_seconds, before + 1 < kMost ? "" : "; further slow waits will not be reported");
  print_warning(line);
}

}  // namespace gantry
