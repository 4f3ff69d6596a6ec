// The end of a process of a job, and the receivers of the reason.
#pragma once

#include <functional>
#include <string>

namespace gantry {

// Sets the receiver of the reason when this rank ends the job: the control plane. It is called from any
// thread, so it must not block. An empty function removes it.
void set_failure_listener(std::function<void(int exit_code, const std::string& cause)> listener);
void tell_failure(int exit_code, const std::string& cause);

// Further actions of this process when it ends the job because of a failure: the launch writes flight
// records. Set them before the ranks begin.
struct FailureNotes {
  void (*record)(int exit_code, const std::string& line) = [](int, const std::string&) {};
  void (*print_hint)() = [] {};  // after the error's line
};
void set_failure_notes(FailureNotes notes);
FailureNotes failure_notes();

// While `line` is not empty, a process that ends by itself (std::exit within a rank's body) prints it,
// reports it and ends with exit code 7, because the other ranks would wait for it.
void set_early_end_line(std::string line);

// Sets the function that ends all processes of the job together with this one: MPI's. Without it, the control
// plane makes the other processes end.
void set_job_abort(void (*abort)(int exit_code));

// Flushes the streams and ends this process with this code, and the other processes if set_job_abort() was
// called.
[[noreturn]] void end_process(int exit_code);
// Records, prints and reports the line, and ends the process like end_process() with the exit code of
// PeerError. Nothing in it throws, because the process may be partly destroyed.
[[noreturn]] void end_by_line(const std::string& line);

}  // namespace gantry
