// The tests of mpi_errors_mpi_test over sockets. Each of its jobs fails, and `gantry launch` ends with the
// first failure, so the ranks are started without it.
#include <cstdlib>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "conformance.h"
#include "gantry/launch/launch.h"
#include "gantry/launch/process_job.h"
#include "mpi_job.h"
#include "process_rig.h"

namespace gantry::testing {
namespace {

TEST(TcpErrors, AreThoseOfMpi) {
  const JobOutcome outcome = run_tests_over_tcp(3, "ProcessErrors.*");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("[  PASSED  ]"), std::string::npos) << outcome.output;
}

// The control plane does not notice this failure, so the waits report it.
TEST(TcpRanks, DISABLED_OneClosesItsSockets) {
  Job job({.timeout_seconds = 30});
  if (job.rank() == 2) {
    job.group.reset();
    job.backend.reset();
    return;  // the destructor waits for the others to leave
  }
  const std::string error = thrown_by([&] { job.group->recv({{4}}, 2, {}).wait(); });
  EXPECT_NE(error.find("rank 2 broke: it was closed, while this rank waited for "), std::string::npos) << error;
}
TEST(TcpErrors, ABrokenConnectionNamesThePeerAndTheWait) {
  const JobOutcome outcome = run_tests_over_tcp(3, "TcpRanks.DISABLED_OneClosesItsSockets");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

// Rank 1 is lost before the ranks agree to begin, while rank 0 has an error of its own. Rank 0 also prints
// its own error if it has found it by then.
TEST(TcpRanks, DISABLED_OneIsLostBeforeTheStart) {
  const JobStart start = find_job_start().value();
  if (start.rank == 1) {
    const auto plane = meet_as_started(start, {}, control_options({}, start.rank, start.ranks, name_of), {});
    std::_Exit(0);
  }
  Config config = job_config({.tensor = 2});
  config.parallel.pipeline = 2;
  std::exit(launch(config, [](World&) {}));
}
TEST(TcpErrors, ARankThatIsLostBeforeTheStartIsNamedOnce) {
  const JobOutcome outcome = run_tests_over_tcp(2, "TcpRanks.DISABLED_OneIsLostBeforeTheStart");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: rank 1: "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1 + outcome.count("error: rank 0 on ")) << outcome.output;
}

TEST(TcpRanks, DISABLED_OneMayNotOpenItsSockets) {
  if (find_job_start().value().rank == 1) {
    const rlimit few{50, 50};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  run_job_rank({}, [](World&, ProcessGroupMesh&) {});
}
TEST(TcpErrors, AFailureWhileRanksJoinIsThatOfTheJob) {
  const JobOutcome outcome = run_tests_over_tcp(2, "TcpRanks.DISABLED_OneMayNotOpenItsSockets");
  EXPECT_EQ(outcome.exit_code, ResourceError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("rank 1 (pp 0, dp 0, tp 1): comm.backend: tcp: the limit of open files is 50"), 1)
      << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
}

}  // namespace
}  // namespace gantry::testing
