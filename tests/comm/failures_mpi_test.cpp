// ranks: 1, also over tcp
// Failures of a rank in a job over MPI. Each test starts a job with mpirun, whose ranks run this program.
#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <signal.h>
#include <thread>

#include "gantry/comm/mpi/mpi_transport.h"
#include "gantry/core/error.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/foreign_launcher.h"
#include "gantry/launch/launch.h"
#include "gantry/tensors/libtorch.h"
#include "mpi_job.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

// Delay of a rank. The other ranks have then waited for most of their deadline of two seconds.
constexpr auto kLate = std::chrono::milliseconds(1900);
// Delay of a receiver. In most runs the sender's body has ended by then; if not, the test is still correct.
constexpr auto kAfterTheSender = std::chrono::milliseconds(300);

// Runs this process as one rank of the job. `timeout_seconds` is the deadline of every wait.
void run_rank(
    double timeout_seconds, const std::function<void(World&, ProcessGroupMesh&)>& body,
    const std::function<void()>& and_then = [] {}) {
  run_job_rank({.timeout_seconds = timeout_seconds}, body, and_then);
}

void wait_for_all(ProcessGroupMesh& mesh) {
  torch::Tensor tensor = torch::ones({100'000});
  mesh.world_group().all_reduce(tensor).wait();
}

TEST(Job, DISABLED_OneRankThrows) {
  run_rank(kNoDeadline, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 1) throw ConfigError({"model", "the cause", "", ""});
    wait_for_all(mesh);
  });
}
TEST(Failures, TheFirstCauseIsPrintedOnceAndItsCodeIsTheJobs) {
  const JobOutcome outcome = run_job(3, "OneRankThrows");
  EXPECT_EQ(outcome.exit_code, ConfigError::kExitCode) << outcome.output;
  // A configuration error does not name a rank.
  EXPECT_EQ(outcome.count("error: model: the cause"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
}

TEST(Job, DISABLED_AllRanksThrow) {
  run_rank(kNoDeadline, [](World&, ProcessGroupMesh&) { throw InputError({"data", "the cause", "", ""}); });
}
TEST(Failures, TheSameErrorOnAllRanksIsPrintedOnce) {
  const JobOutcome outcome = run_job(4, "AllRanksThrow");
  EXPECT_EQ(outcome.exit_code, InputError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("data: the cause"), 1) << outcome.output;
}

TEST(Job, DISABLED_OneRankIsLate) {
  run_rank(1, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 2) stay_away();
    wait_for_all(mesh);
  });
}
TEST(Failures, ADeadlineEndsTheJobAndNamesTheLateRank) {
  const JobOutcome outcome = run_job(3, "OneRankIsLate");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("waited 1 s for all_reduce of float32 [100000]"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("rank 2 (pp 0, dp 0, tp 2) has not joined"), 1) << outcome.output;
}

TEST(Job, DISABLED_OneRankIsStopped) {
  run_rank(1, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 0) ::raise(SIGSTOP);
    wait_for_all(mesh);
  });
}
TEST(Failures, AStoppedRankEndsTheJob) {
  const JobOutcome outcome = run_job(2, "OneRankIsStopped");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("rank 0 (pp 0, dp 0, tp 0) has not joined"), 1) << outcome.output;
}

TEST(Job, DISABLED_OneRankIsKilled) {
  run_rank(kNoDeadline, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 1) ::raise(SIGKILL);
    wait_for_all(mesh);
  });
}
TEST(Failures, AKilledRankEndsTheJobAndIsNamed) {
  const JobOutcome outcome = run_job(3, "OneRankIsKilled");
  // mpirun notices the killed process too. It may end the job with the signal's code before Gantry ends it
  // with its own exit code.
  EXPECT_TRUE(outcome.exit_code == PeerError::kExitCode || outcome.exit_code == 128 + SIGKILL) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 1 (pp 0, dp 0, tp 1): its connection closed"), 1) << outcome.output;
}

// The killed rank has filled rounds that the other ranks have not read yet, and it never fills the next
// round.
TEST(Job, DISABLED_OneRankIsKilledInARound) {
  run_rank(kNoDeadline, [](World& world, ProcessGroupMesh& mesh) {
    torch::Tensor tensor = torch::ones({10'000'000});
    mesh.world_group().all_reduce(tensor).wait();
    Work work = mesh.world_group().all_reduce(tensor);
    if (world.rank() == 1) {
      EXPECT_FALSE(work.done());
      ::raise(SIGKILL);
    }
    work.wait();
  });
}
TEST(Failures, ARankThatIsKilledWithinARoundOfSharedMemoryEndsTheJob) {
  const JobOutcome outcome = run_job(3, "OneRankIsKilledInARound");
  EXPECT_TRUE(outcome.exit_code == PeerError::kExitCode || outcome.exit_code == 128 + SIGKILL) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 1 (pp 0, dp 0, tp 1): its connection closed"), 1) << outcome.output;
}

// The control plane notifies the other ranks that the rank has ended.
TEST(Job, DISABLED_OneRankEndsBeforeItsCollective) {
  run_rank(kNoDeadline, [](World& world, ProcessGroupMesh& mesh) {
    wait_for_all(mesh);
    if (world.rank() == 1) return;
    if (world.rank() == 0) wait_for_all(mesh);
    mesh.world_group().recv({{3}}, 1, {}).wait();
  });
}
TEST(Failures, AWaitForARankThatHasEndedEndsSoon) {
  const JobOutcome outcome = run_job(3, "OneRankEndsBeforeItsCollective");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("rank 1 (pp 0, dp 0, tp 1) has ended its work"), 1) << outcome.output;
}

TEST(Job, DISABLED_OneRankEndsBeforeAGroup) {
  run_rank(kNoDeadline, [](World& world, ProcessGroupMesh&) {
    if (world.rank() != 0) world.backend().make_group("late", {0, 1, 2});
  });
}
TEST(Failures, AGroupWithoutARankThatHasEndedIsNotWaitedFor) {
  const JobOutcome outcome = run_job(3, "OneRankEndsBeforeAGroup");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("make the group 'late', which rank 0 (pp 0, dp 0, tp 0) has not joined, but rank 0 (pp 0, dp "
                          "0, tp 0) has ended its work"),
            1)
      << outcome.output;
}

// A failure outside the body: the build or the configuration of one rank differs from that of the others.
TEST(Job, DISABLED_OneRankCannotBegin) {
  Config config = job_config({.tensor = launched_ranks()});
  if (std::max(launcher_number("OMPI_COMM_WORLD_RANK"), launcher_number("RANK")) == 1) config.parallel.tensor = 7;
  std::exit(launch(config, [](World&) {}));
}
TEST(Failures, WhatKeepsOneRankFromBeginningIsPrinted) {
  const JobOutcome outcome = run_job(3, "OneRankCannotBegin");
  EXPECT_EQ(outcome.exit_code, ConfigError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 1 on "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
}

TEST(Job, DISABLED_NoRankCanBegin) {
  std::exit(launch(job_config({.tensor = 7}), [](World&) {}));
}
TEST(Failures, WhatKeepsAllRanksFromBeginningIsPrintedOnce) {
  const JobOutcome outcome = run_job(3, "NoRankCanBegin");
  EXPECT_EQ(outcome.exit_code, ConfigError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank"), 0) << outcome.output;
}

// If the first member of a group waits too, the error names the missing rank instead of it.
TEST(Job, DISABLED_TheFirstRankWaitsToo) {
  run_rank(2, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 2) {
      Work never = mesh.world_group().recv({{1}}, 2, {Tag::Kind::kMetadata, 1, 1, 1});
      while (!never.done()) std::this_thread::yield();
    }
    // Rank 0's deadline is later than rank 1's by `kLate`.
    if (world.rank() == 0) std::this_thread::sleep_for(kLate);
    world.backend().make_group("late", {0, 1, 2});
  });
}
TEST(Failures, AGroupsFirstRankIsNotBlamedWhileItWaits) {
  const JobOutcome outcome = run_job(3, "TheFirstRankWaitsToo");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 0 (pp 0, dp 0, tp 0) waited 2 s"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("rank 2 (pp 0, dp 0, tp 2) has not joined"), 1) << outcome.output;
}

TEST(Job, DISABLED_OneRankMakesNoGroup) {
  run_rank(1, [](World& world, ProcessGroupMesh&) {
    if (world.rank() == 1) stay_away();
    const auto group = world.backend().make_group("shared", {0, 1});
  });
}
TEST(Failures, MakingAGroupHasADeadlineToo) {
  const JobOutcome outcome = run_job(2, "OneRankMakesNoGroup");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 0 (pp 0, dp 0, tp 0) waited 1 s for the ranks 0, 1 to make the group 'shared'"),
            1)
      << outcome.output;
  EXPECT_EQ(outcome.count("rank 1 (pp 0, dp 0, tp 1) has not joined"), 1) << outcome.output;
}

TEST(Job, DISABLED_OneRankDoesNotEnd) {
  run_rank(
      1, [](World&, ProcessGroupMesh& mesh) { wait_for_all(mesh); },
      [] {
        if (mpi_world_rank() == 1) stay_away();
      });
}
TEST(Failures, EndingTheJobHasADeadlineToo) {
  if (jobs_are_over_tcp()) GTEST_SKIP() << "the end of a process is waited for by MPI_Finalize alone";
  const JobOutcome outcome = run_job(2, "OneRankDoesNotEnd");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: mpi: MPI_Finalize waited 1 s for other ranks"), 1) << outcome.output;
}

TEST(Job, DISABLED_NothingFails) {
  run_rank(30, [](World& world, ProcessGroupMesh& mesh) {
    wait_for_all(mesh);
    // The message is received only after the sender's body has ended.
    if (world.rank() == 0) mesh.world_group().send(torch::ones({1 << 20}), 1, {});
    if (world.rank() != 1) return;
    std::this_thread::sleep_for(kAfterTheSender);
    EXPECT_TRUE(torch::equal(mesh.world_group().recv({{1 << 20}}, 0, {}).result(), torch::ones({1 << 20})));
  });
}
TEST(Failures, AJobWithoutOneEndsWithZeroAndSilently) {
  const JobOutcome outcome = run_job(3, "NothingFails");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.count("error"), 0) << outcome.output;
}

}  // namespace
}  // namespace gantry::testing
