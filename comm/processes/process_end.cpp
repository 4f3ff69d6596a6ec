#include "gantry/comm/processes/process_end.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <thread>
#include <unistd.h>

#include "gantry/comm/control/timers.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

std::mutex listener_mutex;  // guards the following three variables
std::function<void(int, const std::string&)> failure_listener;
std::string early_end_line;
FailureNotes notes;
std::atomic<void (*)(int)> job_abort{nullptr};

void end_early() {
  std::string line;
  {
    const std::lock_guard lock(listener_mutex);
    line = early_end_line;
  }
  if (!line.empty()) end_by_line(line);
}

}  // namespace

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
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(end_early); });
  const std::lock_guard lock(listener_mutex);
  early_end_line = std::move(line);
}

void set_job_abort(void (*abort)(int)) { job_abort = abort; }

void end_process(int exit_code) {
  std::thread([exit_code] {
    std::this_thread::sleep_for(std::chrono::duration<double>(control::kAbortSeconds));
    ::_exit(exit_code);
  }).detach();
  std::cout.flush();
  std::fflush(nullptr);
  if (const auto abort = job_abort.load()) abort(exit_code);
  ::_exit(exit_code);
}

void end_by_line(const std::string& line) {
  failure_notes().record(PeerError::kExitCode, line);
  std::fprintf(stderr, "error: %s\n", line.c_str());
  failure_notes().print_hint();
  tell_failure(PeerError::kExitCode, line);
  std::this_thread::sleep_for(std::chrono::duration<double>(control::kLastWordsSeconds));
  end_process(PeerError::kExitCode);
}

}  // namespace gantry
