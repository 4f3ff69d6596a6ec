#include "gantry/comm/mpi/mpi_environment.h"

#include <chrono>
#include <cstdlib>
#include <fmt/format.h>

#include "gantry/comm/mpi/mpi_transport.h"
#include "gantry/comm/processes/process_end.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

double finalize_seconds = 60;

void initialise() {
  int running = 0;
  MPI_Initialized(&running);
  int provided = MPI_THREAD_SINGLE;
  if (running) {
    MPI_Query_thread(&provided);
  } else {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    std::atexit(mpi_finalize);  // only if this call has initialised MPI
  }
  if (provided < MPI_THREAD_MULTIPLE)
    throw ResourceError({"mpi", fmt::format("this MPI provides thread level {}", provided), "MPI_THREAD_MULTIPLE",
                         "use an MPI built with thread support"});
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  set_job_abort([](int exit_code) {
    if (mpi_is_running()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  });
}

}  // namespace

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) throw PeerError({"mpi", fmt::format("{} failed: {}", call, mpi_error_text(code)), "", ""});
}

bool mpi_is_running() {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised && !finalised;
}

void mpi_initialise() {
  static std::once_flag once;
  std::call_once(once, initialise);
}

int mpi_world_size() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int mpi_world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void set_mpi_finalize_deadline(double seconds) { finalize_seconds = seconds; }

void mpi_finalize() {
  if (!mpi_is_running()) return;
  const Watchdog watchdog(finalize_seconds, fmt::format("mpi: MPI_Finalize waited {} s for other ranks; expected all "
                                                        "ranks to end; check what the slowest rank is doing",
                                                        finalize_seconds));
  MPI_Finalize();
}

Watchdog::Watchdog(double seconds, std::string line) {
  thread_ = std::thread([this, seconds, line = std::move(line)] {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return finished_; })) return;
    end_by_line(line);
  });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace gantry
