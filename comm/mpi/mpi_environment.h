// MPI's errors as Gantry errors, its start and end, and time limits for its few blocking calls.
#pragma once

#include <condition_variable>
#include <mpi.h>
#include <mutex>
#include <string>
#include <thread>

namespace gantry {

// Throws PeerError "mpi: <call> failed: <MPI's text>", unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);
std::string mpi_error_text(int code);

bool mpi_is_running();  // initialised and not finalised

// MPI's collective set-up calls have no deadline. While a Watchdog exists, its thread waits. If the Watchdog
// still exists after `seconds`, the thread prints "error: <line>" and ends the job.
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
