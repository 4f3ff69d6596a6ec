// The end of a process of a job, and the receivers of its reason.
#pragma once

#include <functional>
#include <string>

namespace gantry {

// The receiver of the reason when this rank ends the job: the control plane. Called from any
// thread, so it must not block; an empty one ends it.
void set_failure_listener(std::function<void(int exit_code, const std::string& cause)> listener);
void tell_failure(int exit_code, const std::string& cause);

// Further acts of this process when it ends the job by a failure: the launch has flight records written. Set before
// ranks begin.
struct FailureNotes {
  void (*record)(int exit_code, const std::string& line) = [](int, const std::string&) {};
  void (*print_hint)() = [] {};  // after the error's line
};
void set_failure_notes(FailureNotes notes);
FailureNotes failure_notes();

// While `line` is not empty, a process that ends by itself (std::exit within a rank's body) prints it, tells it and
// ends with exit code 7: the others would wait for it.
void set_early_end_line(std::string line);

// The way to end all processes of the job with this one: MPI's. Without, the control plane has the others end.
void set_job_abort(void (*abort)(int exit_code));

// Flushes the streams and ends this process with this code, and the others where there is a way.
[[noreturn]] void end_process(int exit_code);
// The same after it has recorded, printed and told the line, with PeerError's code. Nothing here throws: it may find
// the process half ended.
[[noreturn]] void end_by_line(const std::string& line);

}  // namespace gantry
