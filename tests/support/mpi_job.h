// Jobs of processes that a test starts and watches from outside: by mpirun, or, in entries over tcp, as torchrun does.
#pragma once

#include <functional>
#include <string>

#include "gantry/comm/process_group_mesh.h"
#include "ranks.h"

namespace gantry::testing {

// Longer than any such job: something else ends its waits.
constexpr double kNoDeadline = 3600;

struct JobOutcome {
  int exit_code = 0;
  std::string output;  // of both streams

  int count(const std::string& text) const;
};

// By the entry that runs this program.
bool jobs_are_over_tcp();

// Runs the disabled test Job.DISABLED_<name> of this program on `ranks` ranks; ended after 60 s, with exit code 124.
// Over tcp nothing ends a rank whose job has failed, except one that is stopped; the code is that of the rank that
// failed, or PeerError's where others have missed one.
JobOutcome run_job(int ranks, const std::string& name);

// Runs these tests of this program on ranks that are processes without MPI, started in the same way.
JobOutcome run_tests_over_tcp(int ranks, const std::string& filter);

// The ranks' side: the configuration of that layout, whose ranks are the processes of the job.
Config job_config(const Layout& layout);
// `body` on each rank of a job along tp, with this communication; after it `and_then` runs and the
// process ends with the launch's exit code.
[[noreturn]] void run_job_rank(
    const CommConfig& comm, const std::function<void(World&, ProcessGroupMesh&)>& body,
    const std::function<void()>& and_then = [] {});

// A rank that does not come: until the end of the job takes its process.
[[noreturn]] void stay_away();

}  // namespace gantry::testing
