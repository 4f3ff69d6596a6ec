// The tests of mpi_errors_mpi_test over sockets. Each of its jobs fails, and a launch ends with its first failure: the
// ranks are started without one.
#include <gtest/gtest.h>

#include "conformance.h"
#include "mpi_job.h"
#include "process_rig.h"

namespace gantry::testing {
namespace {

TEST(TcpErrors, AreThoseOfMpi) {
  const JobOutcome outcome = run_tests_over_tcp(3, "ProcessErrors.*");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("[  PASSED  ]"), std::string::npos) << outcome.output;
}

// The control plane knows nothing of it, so the waits say it themselves.
TEST(TcpRanks, DISABLED_OneClosesItsSockets) {
  Job job({.timeout_seconds = 30});
  if (job.rank() == 2) {
    job.group.reset();
    job.backend.reset();
    return;  // and waits for the others to leave
  }
  const std::string error = thrown_by([&] { job.group->recv({{4}}, 2, {}).wait(); });
  EXPECT_NE(error.find("from rank 2 failed: the connection to rank 2 broke: it was closed"), std::string::npos)
      << error;
}
TEST(TcpErrors, ABrokenConnectionNamesThePeerAndTheWait) {
  const JobOutcome outcome = run_tests_over_tcp(3, "TcpRanks.DISABLED_OneClosesItsSockets");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

}  // namespace
}  // namespace gantry::testing
