// ranks: 1
// What a job over MPI does when a rank fails: each test starts a job of its own by mpirun, whose ranks are this program
// again.
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "gantry/comm/launch.h"
#include "gantry/comm/mpi/mpi_backend.h"
#include "gantry/core/error.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

struct Outcome {
  int exit_code = 0;
  double seconds = 0;
  std::string output;  // of both streams

  int count(const std::string& text) const {
    int found = 0;
    for (std::size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) ++found;
    return found;
  }
};

// mpirun within mpirun works only without the outer one's environment.
std::string clean_environment() {
  std::string assignments = "env -i OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
  for (const char* name : {"PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR"})
    if (const char* value = std::getenv(name)) assignments += std::string(" ") + name + "='" + value + "'";
  return assignments;
}

// Runs the disabled test `name` of this program on `ranks` ranks.
Outcome run_job(int ranks, const std::string& name) {
  char self[PATH_MAX] = "";
  EXPECT_GT(::readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  const std::string command = clean_environment() + " timeout 60 mpirun --oversubscribe -n " + std::to_string(ranks) +
                              " '" + self + "' --gtest_also_run_disabled_tests --gtest_filter=Job.DISABLED_" + name +
                              " 2>&1";
  Outcome outcome;
  const auto begin = std::chrono::steady_clock::now();
  FILE* stream = ::popen(command.c_str(), "r");
  EXPECT_NE(stream, nullptr);
  char block[4096];
  while (const std::size_t n = std::fread(block, 1, sizeof(block), stream)) outcome.output.append(block, n);
  const int status = ::pclose(stream);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

// The ranks' side: a job of as many ranks as there are, whose waits last `timeout_seconds`; after it `and_then` runs.
void run_rank(
    double timeout_seconds, const std::function<void(World&, ProcessGroupMesh&)>& body,
    const std::function<void()>& and_then = [] {}) {
  mpi_initialise();
  Config config = layout_config({.tensor = mpi_world_size()});
  config.comm.timeout_seconds = timeout_seconds;
  const int code = launch(config, [&](World& world) {
    ProcessGroupMesh mesh(world);
    body(world, mesh);
  });
  and_then();
  std::exit(code);
}

void wait_for_all(ProcessGroupMesh& mesh) {
  torch::Tensor tensor = torch::ones({100'000});
  mesh.world_group().all_reduce(tensor).wait();
}

TEST(Job, DISABLED_OneRankThrows) {
  run_rank(30, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 1) throw ConfigError({"model", "the cause", "", ""});
    wait_for_all(mesh);
  });
}
TEST(Failures, TheFirstCauseIsPrintedOnceAndItsCodeIsTheJobs) {
  const Outcome outcome = run_job(3, "OneRankThrows");
  EXPECT_EQ(outcome.exit_code, ConfigError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 1 (pp 0, dp 0, tp 1): model: the cause"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
  EXPECT_LT(outcome.seconds, 15);
}

TEST(Job, DISABLED_AllRanksThrow) {
  run_rank(30, [](World&, ProcessGroupMesh&) { throw InputError({"data", "the cause", "", ""}); });
}
TEST(Failures, TheSameErrorOnAllRanksIsPrintedOnce) {
  const Outcome outcome = run_job(4, "AllRanksThrow");
  EXPECT_EQ(outcome.exit_code, InputError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("data: the cause"), 1) << outcome.output;
}

TEST(Job, DISABLED_OneRankIsLate) {
  run_rank(1, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::seconds(40));
    wait_for_all(mesh);
  });
}
TEST(Failures, ADeadlineEndsTheJobAndNamesTheLateRank) {
  const Outcome outcome = run_job(3, "OneRankIsLate");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("waited 1 s for all_reduce of float32 [100000]"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("rank 2 (pp 0, dp 0, tp 2) has not joined"), 1) << outcome.output;
  EXPECT_LT(outcome.seconds, 15);
}

TEST(Job, DISABLED_OneRankIsStopped) {
  run_rank(1, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 0) ::raise(SIGSTOP);
    wait_for_all(mesh);
  });
}
TEST(Failures, AStoppedRankEndsTheJob) {
  const Outcome outcome = run_job(2, "OneRankIsStopped");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("rank 0 (pp 0, dp 0, tp 0) has not joined"), 1) << outcome.output;
  EXPECT_LT(outcome.seconds, 15);
}

TEST(Job, DISABLED_OneRankIsKilled) {
  run_rank(30, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 1) ::raise(SIGKILL);
    wait_for_all(mesh);
  });
}
TEST(Failures, AKilledRankEndsTheJob) {
  const Outcome outcome = run_job(3, "OneRankIsKilled");
  EXPECT_NE(outcome.exit_code, 0) << outcome.output;
  EXPECT_LT(outcome.seconds, 15);
}

TEST(Job, DISABLED_OneRankMakesNoGroup) {
  run_rank(1, [](World& world, ProcessGroupMesh&) {
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(40));
    const auto group = world.backend().make_group("shared", {0, 1});
  });
}
TEST(Failures, MakingAGroupHasADeadlineToo) {
  const Outcome outcome = run_job(2, "OneRankMakesNoGroup");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 0 (pp 0, dp 0, tp 0) waited 1 s for the ranks 0, 1 to make the group 'shared'"),
            1)
      << outcome.output;
  EXPECT_LT(outcome.seconds, 15);
}

TEST(Job, DISABLED_OneRankDoesNotEnd) {
  run_rank(
      1, [](World&, ProcessGroupMesh& mesh) { wait_for_all(mesh); },
      [] {
        if (mpi_world_rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(40));
      });
}
TEST(Failures, EndingTheJobHasADeadlineToo) {
  const Outcome outcome = run_job(2, "OneRankDoesNotEnd");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: mpi: MPI_Finalize waited 1 s for other ranks"), 1) << outcome.output;
  EXPECT_LT(outcome.seconds, 15);
}

TEST(Job, DISABLED_NothingFails) {
  run_rank(30, [](World& world, ProcessGroupMesh& mesh) {
    wait_for_all(mesh);
    // Sent, but taken only after the sender's body has ended.
    if (world.rank() == 0) mesh.world_group().send(torch::ones({1 << 20}), 1, {});
    if (world.rank() != 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_TRUE(torch::equal(mesh.world_group().recv({{1 << 20}}, 0, {}).result(), torch::ones({1 << 20})));
  });
}
TEST(Failures, AJobWithoutOneEndsWithZeroAndSilently) {
  const Outcome outcome = run_job(3, "NothingFails");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.count("error"), 0) << outcome.output;
}

}  // namespace
}  // namespace gantry::testing
