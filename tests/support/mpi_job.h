// Jobs of processes that a test starts and observes from outside. They are started by mpirun or, in ctest
// entries over tcp, in the way of torchrun.
#pragma once

#include <functional>
#include <string>

#include "gantry/comm/process_group_mesh.h"
#include "ranks.h"

namespace gantry::testing {

// Longer than any such job, so that a timeout never ends its waits.
constexpr double kNoDeadline = 3600;

struct JobOutcome {
  int exit_code = 0;
  std::string output;  // stdout and stderr

  int count(const std::string& text) const;
};

// True if the ctest entry that runs this program uses tcp.
bool jobs_are_over_tcp();

// Runs the disabled test Job.DISABLED_<name> of this program on `ranks` ranks. After 60 s the job is ended
// and the exit code is 124. Over tcp, the other ranks of a failed job must end by themselves; only suspended
// ones are killed. The exit code is that of the first rank that failed. Other errors take precedence over
// PeerError.
JobOutcome run_job(int ranks, const std::string& name);

// Runs the tests of `filter` in this program, with ranks that are processes over tcp, in the same way.
JobOutcome run_tests_over_tcp(int ranks, const std::string& filter);

// For the ranks: the configuration of a layout whose ranks are the processes of the job.
Config job_config(const Layout& layout);
// For the ranks: runs `body` on each rank of the job, along tp, with the settings `comm`. Then calls
// `and_then` and ends the process with the exit code of launch().
[[noreturn]] void run_job_rank(
    const CommConfig& comm, const std::function<void(World&, ProcessGroupMesh&)>& body,
    const std::function<void()>& and_then = [] {});

// For a rank that never joins: waits until the end of the job kills the process.
[[noreturn]] void stay_away();

}  // namespace gantry::testing
