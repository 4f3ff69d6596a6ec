#include "gantry/checkpoint/disk_work.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <fmt/format.h>
#include <mutex>
#include <thread>
#include <utility>

#include <ATen/record_function.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

using StallClock = std::chrono::steady_clock;

// Exchanges the progress of this rank with the other ranks on a separate thread, until all of them are done.
class Teller {
 public:
  Teller(ProcessGroup& group, const DiskLimits& limits, const DiskProgress& progress)
      : group_(group), limits_(limits), progress_(progress), thread_([this] { run(); }) {}

  // Call it when this rank is done or has failed. Throws the error of the exchange.
  void finish(bool failed) {
    {
      const std::lock_guard lock(mutex_);
      (failed ? failed_ : done_) = true;
    }
    changed_.notify_one();
    thread_.join();
    if (!failed && fault_) std::rethrow_exception(fault_);
  }

 private:
  void run() {
    const at::DisableRecordFunctionGuard unseen;  // not part of profiles
    try {
      while (tell()) {
      }
    } catch (...) {
      fault_ = std::current_exception();
    }
  }

  // Returns false if all ranks are done, or if this rank has failed. The other ranks notice a failure when it
  // ends the job.
  bool tell() {
    bool done = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::duration<double>(limits_.tell_seconds), [&] { return done_ || failed_; });
      if (failed_) return false;
      done = done_;
    }
    const auto unfinished = all_gather_numbers(group_, done ? 0 : 1);
    const double amount = all_reduce_number(group_, static_cast<double>(progress_.amount()));
    if (limits_.notified) limits_.notified();
    const auto first = std::find(unfinished.begin(), unfinished.end(), 1);
    if (first == unfinished.end()) return false;
    const auto now = StallClock::now();
    if (std::exchange(amount_, amount) != amount) moved_ = now;
    if (std::chrono::duration<double>(now - moved_).count() >= limits_.stall_seconds)
      refuse_stall(first - unfinished.begin());
    return true;
  }

  [[noreturn]] void refuse_stall(std::ptrdiff_t rank) const {
    throw PeerError({limits_.work,
                     fmt::format("rank {} of the job has not finished, and no rank has made progress for {} s", rank,
                                 limits_.stall_seconds),
                     "a disk that responds", "check that rank's file system"});
  }

  ProcessGroup& group_;
  const DiskLimits& limits_;
  const DiskProgress& progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false, failed_ = false;
  double amount_ = 0;
  StallClock::time_point moved_ = StallClock::now();
  std::exception_ptr fault_;
  std::thread thread_;  // last, because it uses the members above
};

}  // namespace

DiskLimits disk_limits(double timeout_seconds, const char* work) {
  DiskLimits limits;
  limits.work = work;
  limits.tell_seconds = std::min(limits.tell_seconds, timeout_seconds / 4);
  return limits;
}

void work_on_disk(ProcessGroup& group, const DiskLimits& limits, const DiskProgress& progress,
                  const std::function<void()>& work) {
  Teller teller(group, limits, progress);
  try {
    work();
  } catch (...) {
    teller.finish(/*failed=*/true);
    throw;
  }
  teller.finish(/*failed=*/false);
}

}  // namespace gantry
