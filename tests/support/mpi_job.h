// Jobs over MPI that a test starts by mpirun and watches from outside.
#pragma once

#include <functional>
#include <string>

#include "gantry/comm/process_group_mesh.h"

namespace gantry::testing {

// Longer than any such job: something else ends its waits.
constexpr double kNoDeadline = 3600;

struct JobOutcome {
  int exit_code = 0;
  std::string output;  // of both streams

  int count(const std::string& text) const;
};

// Runs the disabled test Job.DISABLED_<name> of this program on `ranks` ranks; ended after 60 s, with exit code 124.
JobOutcome run_job(int ranks, const std::string& name);

// The ranks' side: `body` on each rank of a job along tp, with this communication; after it `and_then` runs and the
// process ends with the launch's exit code.
[[noreturn]] void run_job_rank(
    const CommConfig& comm, const std::function<void(World&, ProcessGroupMesh&)>& body,
    const std::function<void()>& and_then = [] {});

// A rank that does not come: until the end of the job takes its process.
[[noreturn]] void stay_away();

}  // namespace gantry::testing
