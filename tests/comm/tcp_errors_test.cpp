// The tests of mpi_errors_mpi_test over sockets. Each of its jobs fails, and a launch ends with its first failure: the
// ranks are started without one.
#include <gtest/gtest.h>

#include "mpi_job.h"

namespace gantry::testing {
namespace {

TEST(TcpErrors, AreThoseOfMpi) {
  const JobOutcome outcome = run_tests_over_tcp(3, "ProcessErrors.*");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("[  PASSED  ]"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace gantry::testing
