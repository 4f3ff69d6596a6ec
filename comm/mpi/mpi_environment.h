// MPI's errors as ours, guards around its few calls that block, and what a rank knows of failures.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mpi.h>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gantry/comm/control/frames.h"
#include "gantry/comm/wait_limits.h"

namespace gantry {

// PeerError "mpi: <call> failed: <MPI's text>" unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);
std::string mpi_error_text(int code);

int mpi_largest_tag();  // MPI_TAG_UB
bool mpi_is_running();  // initialised and not finalised

// The receiver of the reason when this rank ends the job: the control plane. Called from any
// thread, so it must not block; an empty one ends it.
void set_failure_listener(std::function<void(int exit_code, const std::string& cause)> listener);
void tell_failure(int exit_code, const std::string& cause);

// What else this process does where it ends the job by a failure: the launch has flight records written. Set before
// ranks begin.
struct FailureNotes {
  void (*record)(int exit_code, const std::string& line) = [](int, const std::string&) {};
  void (*print_hint)() = [] {};  // after the error's line
};
void set_failure_notes(FailureNotes notes);
FailureNotes failure_notes();

// While `line` is not empty, a process that ends by itself (std::exit within a rank's body) prints it, tells it and
// ends the job with exit code 7: the others would wait for it.
void set_early_end_line(std::string line);

// What this rank knows of failures, and of ranks that have ended. Shared between threads, and guarded by `mutex_`.
class MpiFailures {
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
  // Of those one whose messages must have come; -1 without.
  int find_ended(const std::vector<int>& ranks) const;

 private:
  FirstFailure first_;
  std::atomic<bool> elsewhere_{false};
  mutable std::mutex mutex_;
  std::optional<JobFailure> known_;
  std::map<int, std::chrono::steady_clock::time_point> ended_at_;  // when this rank heard of it, by world rank
};

// MPI's collective set-up calls can't be given a deadline. While this lives, a thread of its own waits for it; if it is
// still there after `seconds`, it prints "error: <line>" and ends the job.
class Watchdog {
 public:
  Watchdog(double seconds, std::string line);
  ~Watchdog();

 private:
  std::mutex mutex_;  // guards finished_
  std::condition_variable changed_;
  bool finished_ = false;
  std::thread thread_;
};

}  // namespace gantry
