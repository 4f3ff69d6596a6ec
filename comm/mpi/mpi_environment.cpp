#include "gantry/comm/mpi/mpi_environment.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <iostream>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include "gantry/comm/control/timers.h"
#include "gantry/comm/mpi/mpi_backend.h"
#include "gantry/core/error.h"
#include "gantry/core/usable_cores.h"

namespace gantry {
namespace {

int ranks_on_host = 1;
double cores_of_rank = 1;
double finalize_seconds = 60;

std::mutex listener_mutex;  // guards the next three
std::function<void(int, const std::string&)> failure_listener;
std::string early_end_line;
FailureNotes notes;

std::string current_early_end_line() {
  const std::lock_guard lock(listener_mutex);
  return early_end_line;
}

void look_at_host() {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  MPI_Comm_size(host, &ranks_on_host);
  static_assert(std::is_trivially_copyable_v<CpuClaim>);
  const CpuClaim mine = own_cpu_claim();
  std::vector<CpuClaim> claims(static_cast<std::size_t>(ranks_on_host));
  check_mpi(MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, claims.data(), sizeof(mine), MPI_BYTE, host), "MPI_Allgather");
  cores_of_rank = share_of_cores(mine, claims);
  MPI_Comm_free(&host);
}

void initialise() {
  int running = 0;
  MPI_Initialized(&running);
  int provided = MPI_THREAD_SINGLE;
  if (running) {
    MPI_Query_thread(&provided);
  } else {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    std::atexit(mpi_finalize);  // who initialises finalises
  }
  if (provided < MPI_THREAD_MULTIPLE)
    throw ResourceError({"mpi", fmt::format("this MPI provides thread level {}", provided), "MPI_THREAD_MULTIPLE",
                         "use an MPI built with thread support"});
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  look_at_host();
}

// What runs after this may find the process half ended: no exceptions, no returning.
[[noreturn]] void end_by_line(const std::string& line) {
  failure_notes().record(PeerError::kExitCode, line);
  std::fprintf(stderr, "error: %s\n", line.c_str());
  failure_notes().print_hint();
  tell_failure(PeerError::kExitCode, line);
  std::this_thread::sleep_for(std::chrono::duration<double>(control::kLastWordsSeconds));
  mpi_abort(PeerError::kExitCode);
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

int mpi_largest_tag() {
  int* largest = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &found);
  return found ? *largest : 32767;  // the least that the standard allows
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

int mpi_ranks_on_host() { return ranks_on_host; }

double mpi_cores_of_rank() { return cores_of_rank; }

void set_failure_listener(std::function<void(int, const std::string&)> listener) {
  const std::lock_guard lock(listener_mutex);
  failure_listener = std::move(listener);
}

void tell_failure(int exit_code, const std::string& cause) {
  const std::lock_guard lock(listener_mutex);
  if (failure_listener) failure_listener(exit_code, cause);
}

void set_failure_notes(FailureNotes notified) {
  const std::lock_guard lock(listener_mutex);
  notes = notified;
}

FailureNotes failure_notes() {
  const std::lock_guard lock(listener_mutex);
  return notes;
}

void set_early_end_line(std::string line) {
  const std::lock_guard lock(listener_mutex);
  early_end_line = std::move(line);
}

void mpi_abort(int exit_code) {
  std::thread([exit_code] {
    std::this_thread::sleep_for(std::chrono::duration<double>(control::kAbortSeconds));
    ::_exit(exit_code);
  }).detach();
  std::cout.flush();
  std::fflush(nullptr);
  if (mpi_is_running()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  ::_exit(exit_code);
}

void mpi_finalize() {
  if (!mpi_is_running()) return;
  if (const std::string line = current_early_end_line(); !line.empty()) end_by_line(line);
  const Watchdog watchdog(finalize_seconds, fmt::format("mpi: MPI_Finalize waited {} s for other ranks; expected all "
                                                        "ranks to end; check what the slowest rank is doing",
                                                        finalize_seconds));
  MPI_Finalize();
}

void MpiFailures::hear(const JobFailure& failure) {
  {
    const std::lock_guard lock(mutex_);
    known_ = failure;
  }
  if (first_.set(failure.exit_code, failure.cause)) elsewhere_.store(true, std::memory_order_release);
}

std::optional<JobFailure> MpiFailures::known() const {
  const std::lock_guard lock(mutex_);
  return known_;
}

void MpiFailures::note_ended(const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  for (const int rank : ranks) ended_at_.emplace(rank, std::chrono::steady_clock::now());
}

bool MpiFailures::some_ended() const {
  const std::lock_guard lock(mutex_);
  return !ended_at_.empty();
}

int MpiFailures::find_ended(const std::vector<int>& ranks) const {
  const std::lock_guard lock(mutex_);
  for (const int rank : ranks)
    if (const auto ended = ended_at_.find(rank);
        ended != ended_at_.end() && std::chrono::steady_clock::now() - ended->second >=
                                        std::chrono::duration<double>(control::kLastMessagesSeconds))
      return rank;
  return -1;
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
