// ranks: 1, also over tcp
// The end of jobs over NCCL when one rank fails, is killed, is stopped or keeps a communicator. Each test
// starts a job of processes that run this program. In the fake NCCL, the end of a communicator waits for its
// members in other processes.
#include <csignal>
#include <cstdlib>
#include <unistd.h>

#include "gantry/launch/backends.h"
#include "mpi_job.h"
#include "nccl_ranks.h"

namespace gantry::testing {
namespace {

[[noreturn]] void run_device_rank(double timeout, const std::function<void(World&, ProcessGroupMesh&)>& body) {
  Config config = layout_config({.pipeline = launched_ranks()});
  config.comm.timeout_seconds = timeout;
  config.comm.recorder = 0;
  const auto on_rank = [&](World& world) {
    ProcessGroupMesh mesh(world);
    body(world, mesh);
    mesh.world_group().barrier().wait();
  };
  std::exit(launch_on_devices(config, on_rank, {.processes = true}));
}

void sum_over_all(ProcessGroupMesh& mesh) {
  torch::Tensor tensor = torch::ones({100}, here());
  mesh.world_group().all_reduce(tensor).wait();
  tensor.sum().item<float>();
}

TEST(Job, DISABLED_OneDeviceRankThrows) {
  run_device_rank(kNoDeadline, [](World& world, ProcessGroupMesh& mesh) {
    sum_over_all(mesh);
    if (world.rank() == 1) throw InputError({"data", "the cause", "", ""});
    sum_over_all(mesh);
  });
}
TEST(NcclEnds, AnErrorOfOneRankIsTheJobs) {
  const JobOutcome outcome = run_job(3, "OneDeviceRankThrows");
  EXPECT_EQ(outcome.exit_code, InputError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 1 (pp 1, dp 0, tp 0): data: the cause"), 1) << outcome.output;
}

TEST(Job, DISABLED_OneDeviceRankIsKilled) {
  run_device_rank(kNoDeadline, [](World& world, ProcessGroupMesh& mesh) {
    sum_over_all(mesh);
    if (world.rank() == 1) ::raise(SIGKILL);
    sum_over_all(mesh);
  });
}
TEST(NcclEnds, AKilledRankEndsTheJob) {
  const JobOutcome outcome = run_job(3, "OneDeviceRankIsKilled");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.exit_code, 124) << outcome.output;  // 124: the job's time limit of a minute
}

// While a rank is stopped, its communicators do not end, so those of the other ranks cannot end either.
TEST(Job, DISABLED_OneDeviceRankIsStopped) {
  run_device_rank(2, [](World& world, ProcessGroupMesh& mesh) {
    sum_over_all(mesh);
    if (world.rank() == 1) ::raise(SIGSTOP);
    sum_over_all(mesh);
  });
}
TEST(NcclEnds, AStoppedRankEndsTheJobAtTheDeadline) {
  if (!jobs_are_over_tcp()) GTEST_SKIP() << "mpirun itself waits for a rank that is stopped";
  const JobOutcome outcome = run_job(3, "OneDeviceRankIsStopped");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_GE(outcome.count("error: "), 1) << outcome.output;
}

// On one rank a group outlives the job, as a static object of the program may.
TEST(Job, DISABLED_OneDeviceRankKeepsAGroup) {
  static std::unique_ptr<ProcessGroup> kept;
  run_device_rank(kNoDeadline, [](World& world, ProcessGroupMesh& mesh) {
    auto group = world.backend().make_group("kept", {0, 1});
    sum_over_all(mesh);
    if (world.rank() == 1) kept = std::move(group);
  });
}
TEST(NcclEnds, AGroupThatARankKeepsEndsWithTheJobAndIsNamed) {
  const JobOutcome outcome = run_job(2, "OneDeviceRankKeepsAGroup");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.count("warning: rank 1 (pp 1, dp 0, tp 0): nccl: group 'kept' with rank 0 (pp 0, dp 0, tp 0) "
                          "still exists at the end of the job; its communicator is aborted"),
            1)
      << outcome.output;
}

}  // namespace
}  // namespace gantry::testing
