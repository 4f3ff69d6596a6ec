// ranks: 4, also over tcp
// Steps that a single process aborts.
#include <gtest/gtest.h>

#include "stop_case.h"

namespace gantry::testing {
namespace {

TEST(GivenUpOverMpi, AStepLeavesNoTrace) {
  for (const StopCase& how : std::vector<StopCase>{
           {.name = "pp 2, tp 2", .layout = {.pipeline = 2, .tensor = 2}},
           {.name = "pp 2, tp 2, V", .layout = {.pipeline = 2, .tensor = 2}, .schedule = "zb_v", .chunks = 2},
           {.name = "pp 2, dp 2", .layout = {.pipeline = 2, .data = 2}, .zero = 1, .samples = 7},
           {.name = "ZeRO 2", .layout = {.data = 2, .tensor = 2}, .zero = 2}})
    expect_stop_leaves_no_trace(how);
}

}  // namespace
}  // namespace gantry::testing
