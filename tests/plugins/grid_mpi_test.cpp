// ranks: 4
// A part of the grid over MPI, with the bits of threads.
#include <gtest/gtest.h>

#include "model_case.h"

namespace gantry::testing {
namespace {

TEST(GridOverMpi, EqualsOneRankOnThreads) {
  const ModelCase what{.dropout = 0.1};
  for (const Layout& layout : {Layout{.pipeline = 4}, Layout{.tensor = 4}, Layout{.pipeline = 2, .tensor = 2},
                               Layout{.pipeline = 2, .data = 2}, Layout{.data = 2, .tensor = 2}})
    for (const char* schedule : {"1f1b", "gpipe"}) {
      const Parallelism how{layout, schedule, 3};
      const CaseResult over_mpi = run_case(what, how);
      CaseResult over_threads, one;
      over_threads = run_case(what, how, "local");
      one = run_case(what, {}, "local");
      expect_identical(over_threads, over_mpi, describe(how));
      expect_equal(one, over_mpi, 1e-10, describe(how));
    }
}

}  // namespace
}  // namespace gantry::testing
