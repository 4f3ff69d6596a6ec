// MPI's errors as ours, and guards around its few calls that block.
#pragma once

#include <condition_variable>
#include <functional>
#include <mpi.h>
#include <mutex>
#include <string>
#include <thread>

namespace gantry {

// PeerError "mpi: <call> failed: <MPI's text>" unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);
std::string mpi_error_text(int code);

int mpi_largest_tag();  // MPI_TAG_UB
bool mpi_is_running();  // initialised and not finalised

// Who is told, beside the other ranks' engines, that this rank ends the job and why: the control plane. Called from any
// thread, so it must not block; an empty one ends it.
void set_failure_listener(std::function<void(int exit_code, const std::string& cause)> listener);
void tell_failure(int exit_code, const std::string& cause);

// While `line` is not empty, a process that ends by itself (std::exit within a rank's body) prints it, tells it and
// ends the job with exit code 7: the others would wait for it.
void set_early_end_line(std::string line);

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
