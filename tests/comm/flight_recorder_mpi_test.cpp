// ranks: 1
// Jobs over MPI that hang, and the output of `gantry doctor` for the files that their ranks write.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "mpi_job.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Delay before a rank is signalled. The other ranks have then waited longer than `--stuck-after 0.1`.
constexpr auto kSignalledAfter = std::chrono::milliseconds(300);

// Jobs run in the test's scratch directory, where their ranks write gantry-recorder.
class FlightRecorderOverMpi : public ::testing::Test {
 protected:
  FlightRecorderOverMpi() : before_(std::filesystem::current_path()) { std::filesystem::current_path(scratch_.path()); }
  ~FlightRecorderOverMpi() override { std::filesystem::current_path(before_); }

  std::string doctor(const std::string& flags = "") const {
    const Outcome run = run_program(gantry_program() + " doctor " + (scratch_ / "gantry-recorder") + " " + flags);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  }

  const ScratchFolder scratch_;
  const std::filesystem::path before_;
};

void sum(ProcessGroupMesh& mesh, std::int64_t elements = 4) {
  torch::Tensor tensor = torch::ones({elements});
  mesh.world_group().all_reduce(tensor).wait();
}

TEST(Job, DISABLED_TheRecorderNamesALateRank) {
  run_job_rank({.timeout_seconds = 1}, [](World& world, ProcessGroupMesh& mesh) {
    sum(mesh);
    if (world.rank() == 2) stay_away();
    sum(mesh);
  });
}
// The late rank sleeps, so a separate thread writes its file.
TEST_F(FlightRecorderOverMpi, ALateRankIsNamedWithWhatItDidLast) {
  const JobOutcome outcome = run_job(3, "TheRecorderNamesALateRank");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("flight recorder: `gantry doctor gantry-recorder` shows who waited for whom"), 1)
      << outcome.output;
  const std::string said = doctor();
  EXPECT_THAT(said,
              HasSubstr("for rank 2 (pp 0, dp 0, tp 2) to join all_reduce 1 of group 'pp+dp+tp' (float32 [4]), which "
                        "is outside communication; its last call, all_reduce 0 of group 'pp+dp+tp'"));
  EXPECT_THAT(said, HasSubstr("\nrank 2 (pp 0, dp 0, tp 2): running, "));
}

TEST(Job, DISABLED_TheRecorderNamesAStoppedRank) {
  run_job_rank({.timeout_seconds = 1}, [](World& world, ProcessGroupMesh& mesh) {
    sum(mesh);
    if (world.rank() == 0) ::raise(SIGSTOP);
    sum(mesh);
  });
}
// mpirun resumes the stopped process to kill it, so the rank may still write its file.
TEST_F(FlightRecorderOverMpi, AStoppedRankIsReported) {
  const JobOutcome outcome = run_job(3, "TheRecorderNamesAStoppedRank");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_THAT(doctor(), ContainsRegex("for rank 0 (.pp 0, dp 0, tp 0. )?to join all_reduce 1 of group 'pp.dp.tp' "
                                      ".float32 .4.., which (left no file: it was killed|was suspended)"));
}

TEST(Job, DISABLED_RanksWaitForEachOther) {
  run_job_rank({.timeout_seconds = 1}, [](World& world, ProcessGroupMesh& mesh) {
    mesh.world_group().recv({{4}}, 1 - world.rank(), {Tag::Kind::kForward, world.rank(), 0, 0}).wait();
  });
}
TEST_F(FlightRecorderOverMpi, ACycle) {
  const JobOutcome outcome = run_job(2, "RanksWaitForEachOther");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_THAT(doctor(), StartsWith("2 ranks wait for each other in a cycle: "));
}

TEST(Job, DISABLED_ShapesDiffer) {
  run_job_rank({.timeout_seconds = 20}, [](World& world, ProcessGroupMesh& mesh) { sum(mesh, 4 + world.rank()); });
}
TEST_F(FlightRecorderOverMpi, ShapesThatDiffer) {
  const JobOutcome outcome = run_job(2, "ShapesDiffer");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  const std::string said = doctor();
  EXPECT_THAT(said, HasSubstr("all_reduce of float32 [4] (sum)"));
  EXPECT_THAT(said, HasSubstr("all_reduce of float32 [5] (sum)"));
}

TEST(Job, DISABLED_TheRecorderNamesAMissingGroup) {
  run_job_rank({.timeout_seconds = 1}, [](World& world, ProcessGroupMesh&) {
    if (world.rank() == 1) stay_away();
    const auto group = world.backend().make_group("shared", {0, 1});
  });
}
TEST_F(FlightRecorderOverMpi, ARankThatDoesNotMakeTheGroup) {
  const JobOutcome outcome = run_job(2, "TheRecorderNamesAMissingGroup");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("gantry doctor gantry-recorder"), 1) << outcome.output;
  EXPECT_THAT(doctor(), StartsWith("rank 0 (pp 0, dp 0, tp 0) has waited 1."));
  EXPECT_THAT(doctor(),
              HasSubstr("for rank 1 (pp 0, dp 0, tp 1) to join group 'shared' of the ranks 0, 1, which is outside "
                        "communication"));
}

TEST(Job, DISABLED_OneRankEndsEarly) {
  run_job_rank({.timeout_seconds = 1}, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 0) sum(mesh);
  });
}
// The process of the ended rank waits for the others in MPI_Finalize, and still writes its file.
TEST_F(FlightRecorderOverMpi, ARankThatHasEnded) {
  const JobOutcome outcome = run_job(2, "OneRankEndsEarly");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_THAT(doctor(),
              HasSubstr("for rank 1 (pp 0, dp 0, tp 1) to join all_reduce 0 of group 'pp+dp+tp' (float32 [4]), "
                        "which has ended"));
}

// Rank 1 is signalled while rank 0 waits for it. Rank 0 sees its request and writes a file too.
TEST(Job, DISABLED_OneRankIsSignalled) {
  run_job_rank({.timeout_seconds = 30}, [](World& world, ProcessGroupMesh& mesh) {
    sum(mesh);
    if (world.rank() == 1) {
      std::this_thread::sleep_for(kSignalledAfter);
      ::kill(::getpid(), SIGUSR2);
      for (int i = 0; i < 2000 && !std::filesystem::exists("gantry-recorder/rank-00000.json"); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    sum(mesh);
  });
}
TEST_F(FlightRecorderOverMpi, ASignalToOneRankMakesAllWriteWhileTheJobGoesOn) {
  const JobOutcome outcome = run_job(2, "OneRankIsSignalled");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.output.find("flight recorder"), std::string::npos) << outcome.output;
  EXPECT_THAT(doctor("--stuck-after 0.1"), HasSubstr("rank 0 (pp 0, dp 0, tp 0) has waited"));
  EXPECT_THAT(doctor("--stuck-after 20"), StartsWith("nothing is stuck: the longest wait is that of rank 0"));
}

}  // namespace
}  // namespace gantry::testing
