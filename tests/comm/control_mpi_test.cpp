// ranks: 1, also over tcp
// Ranks of an MPI job that are stopped by signals. Each test starts a job with mpirun, whose ranks run this
// program. The deadlines of waits are longer than the jobs, so only the control plane can end them.
#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <signal.h>
#include <thread>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "mpi_job.h"

namespace gantry::testing {
namespace {

constexpr double kLostAfter = 3;
// Duration of a stop that is shorter than kLostAfter.
constexpr auto kForAWhile = std::chrono::milliseconds(1200);

CommConfig signs_of_life() {
  return {.timeout_seconds = kNoDeadline, .heartbeat_seconds = 0.25, .lost_after_seconds = kLostAfter};
}

void wait_for_every_rank(ProcessGroupMesh& mesh) {
  torch::Tensor tensor = torch::ones({100'000});
  mesh.world_group().all_reduce(tensor).wait();
}

// Returns the process id of a rank, on all ranks.
pid_t id_of(int rank, ProcessGroupMesh& mesh) {
  torch::Tensor id = torch::full({1}, static_cast<std::int64_t>(::getpid()), torch::kInt64);
  mesh.world_group().broadcast(id, rank).wait();
  return static_cast<pid_t>(id.item<std::int64_t>());
}

// `victim` is stopped; the others wait for it.
void stop_for_good(int victim) {
  run_job_rank(signs_of_life(), [victim](World& world, ProcessGroupMesh& mesh) {
    wait_for_every_rank(mesh);
    if (world.rank() == victim) ::raise(SIGSTOP);
    wait_for_every_rank(mesh);
  });
}

void expect_lost(const JobOutcome& outcome, const std::string& rank) {
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: " + rank + ": no heartbeat for 3."), 1) << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
}

TEST(Job, DISABLED_Rank1IsStopped) { stop_for_good(1); }
TEST(StoppedRank, EndsTheJobAndIsNamed) { expect_lost(run_job(3, "Rank1IsStopped"), "rank 1 (pp 0, dp 0, tp 1)"); }

TEST(Job, DISABLED_Rank0IsStopped) { stop_for_good(0); }
TEST(StoppedRank, MayBeRank0) { expect_lost(run_job(3, "Rank0IsStopped"), "rank 0 (pp 0, dp 0, tp 0)"); }

TEST(Job, DISABLED_OthersAreBusy) {
  run_job_rank(signs_of_life(), [](World& world, ProcessGroupMesh& mesh) {
    wait_for_every_rank(mesh);
    if (world.rank() == 1) ::raise(SIGSTOP);
    stay_away();  // outside communication
  });
}
TEST(StoppedRank, IsFoundWhileTheOthersCompute) {
  expect_lost(run_job(2, "OthersAreBusy"), "rank 1 (pp 0, dp 0, tp 1)");
}

TEST(Job, DISABLED_StoppedForAWhile) {
  run_job_rank(signs_of_life(), [](World& world, ProcessGroupMesh& mesh) {
    for (int victim = 0; victim < world.size(); ++victim) {
      const pid_t id = id_of(victim, mesh);
      if (world.rank() == (victim + 1) % world.size()) {
        ::kill(id, SIGSTOP);
        std::this_thread::sleep_for(kForAWhile);
        ::kill(id, SIGCONT);
      }
      wait_for_every_rank(mesh);
    }
  });
}
TEST(StoppedRank, IsUnharmedIfItGoesOnInTime) {
  const JobOutcome outcome = run_job(3, "StoppedForAWhile");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.count("error"), 0) << outcome.output;
}

TEST(Job, DISABLED_Rank0IsKilled) {
  run_job_rank(signs_of_life(), [](World& world, ProcessGroupMesh& mesh) {
    wait_for_every_rank(mesh);
    if (world.rank() == 0) ::raise(SIGKILL);
    wait_for_every_rank(mesh);
  });
}
TEST(KilledRank, MayBeRank0) {
  const JobOutcome outcome = run_job(3, "Rank0IsKilled");
  EXPECT_TRUE(outcome.exit_code == PeerError::kExitCode || outcome.exit_code == 128 + SIGKILL) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 0 (pp 0, dp 0, tp 0): its connection closed"), 1) << outcome.output;
}

TEST(Job, DISABLED_OneRankFailsWhileOthersCompute) {
  run_job_rank(signs_of_life(), [](World& world, ProcessGroupMesh& mesh) {
    wait_for_every_rank(mesh);
    if (world.rank() == 1) throw InputError({"data", "the cause", "", ""});
    stay_away();
  });
}
TEST(FailedRank, EndsOthersThatDoNotCommunicate) {
  const JobOutcome outcome = run_job(3, "OneRankFailsWhileOthersCompute");
  EXPECT_EQ(outcome.exit_code, InputError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 1 (pp 0, dp 0, tp 1): data: the cause"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
}

TEST(Job, DISABLED_EndsAtOnceWithoutAWord) {
  run_job_rank(signs_of_life(), [](World& world, ProcessGroupMesh& mesh) {
    wait_for_every_rank(mesh);
    if (world.rank() == 2) ::_exit(0);
    wait_for_every_rank(mesh);
  });
}
TEST(EarlyEnd, OfARankIsFoundAndNamed) {
  const JobOutcome outcome = run_job(3, "EndsAtOnceWithoutAWord");
  EXPECT_NE(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 2 (pp 0, dp 0, tp 2): its connection closed"), 1) << outcome.output;
}

TEST(Job, DISABLED_ExitsInItsBody) {
  run_job_rank(signs_of_life(), [](World& world, ProcessGroupMesh& mesh) {
    wait_for_every_rank(mesh);
    if (world.rank() == 2) std::exit(0);
    wait_for_every_rank(mesh);
  });
}
TEST(EarlyEnd, ByExitIsFoundToo) {
  const JobOutcome outcome = run_job(3, "ExitsInItsBody");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 2 (pp 0, dp 0, tp 2): the program ended during the rank's work"), 1)
      << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
}

TEST(Job, DISABLED_NoSignsOfLife) {
  CommConfig comm = signs_of_life();
  comm.heartbeat_seconds = 0;
  run_job_rank(comm, [](World&, ProcessGroupMesh& mesh) { wait_for_every_rank(mesh); });
}
TEST(Heartbeat, MayBeSwitchedOff) {
  const JobOutcome outcome = run_job(2, "NoSignsOfLife");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

}  // namespace
}  // namespace gantry::testing
