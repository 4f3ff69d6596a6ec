// MPI's errors as ours, its start and end, and guards around its few calls that block.
#pragma once

#include <condition_variable>
#include <mpi.h>
#include <mutex>
#include <string>
#include <thread>

namespace gantry {

// PeerError "mpi: <call> failed: <MPI's text>" unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);
std::string mpi_error_text(int code);

bool mpi_is_running();  // initialised and not finalised

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
