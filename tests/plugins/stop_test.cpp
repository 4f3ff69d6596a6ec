// A step that one rank aborts leaves weights, optimizer and random state unchanged, and every group usable.
#include <gtest/gtest.h>

#include "stop_case.h"

namespace gantry::testing {
namespace {

TEST(GivenUp, AStepLeavesNoTraceInAnyLayout) {
  for (const StopCase& how : layouts_to_run<StopCase>(
           {{.name = "one rank", .layout = {}},
            {.name = "tp 2", .layout = {.tensor = 2}},
            {.name = "dp 2", .layout = {.data = 2}},
            {.name = "pp 2, gpipe", .layout = {.pipeline = 2}, .schedule = "gpipe"},
            {.name = "pp 2, tp 2", .layout = {.pipeline = 2, .tensor = 2}},
            {.name = "pp 2, dp 2, recomputed", .layout = {.pipeline = 2, .data = 2}, .recompute = "full"},
            {.name = "split backwards", .layout = {.pipeline = 2, .tensor = 2}, .schedule = "zb_h1"},
            {.name = "interleaved", .layout = {.pipeline = 2, .data = 2}, .schedule = "interleaved_1f1b", .chunks = 2},
            {.name = "V", .layout = {.pipeline = 2, .data = 2}, .schedule = "zb_v", .chunks = 2},
            {.name = "overlapped pairs",
            .layout = {.pipeline = 2},
            .schedule = "dualpipe_v",
            .chunks = 2,
            .asks = {5, 6, 7}},  // before each part of the last rank's pair, and between them
            {.name = "ZeRO 1, bfloat16", .layout = {.pipeline = 2, .data = 2}, .zero = 1, .precision = "bfloat16"},
            {.name = "ZeRO 2", .layout = {.data = 2, .tensor = 2}, .zero = 2},
            {.name = "ZeRO 2, pp 2", .layout = {.pipeline = 2, .data = 2}, .zero = 2},
            {.name = "ZeRO 2, split", .layout = {.pipeline = 2, .data = 2}, .schedule = "zb_h1", .zero = 2},
            {.name = "ZeRO 3", .layout = {.data = 2, .tensor = 2}, .zero = 3},
            {.name = "ZeRO 3, split", .layout = {.pipeline = 2, .data = 2}, .schedule = "zb_h1", .zero = 3},
            {.name = "ZeRO 3, unequal replicas", .layout = {.pipeline = 2, .data = 2}, .zero = 3, .samples = 7},
            {.name = "ZeRO 2, unequal replicas", .layout = {.pipeline = 2, .data = 2}, .zero = 2, .samples = 7},
            {.name = "unequal replicas", .layout = {.data = 2, .tensor = 2}, .samples = 7}}))
    expect_stop_leaves_no_trace(how);
}

// The gradient norm of one step of three calls. With `stops`,
// the second call is aborted and no gradient is left.
double accumulate(Rig& rig, World& world, bool stops) {
  const auto run = [&](int seed, bool wants) {
    return rig.booster.execute_pipeline(rig.batch(tokens(8, seed)), rig.boosted,
                                        {.stops = [&world, wants] { return wants && world.rank() == 1; }});
  };
  {
    const auto no_sync = rig.booster.no_sync();
    EXPECT_FALSE(run(0, false).aborted);
    EXPECT_EQ(run(1, stops).aborted, stops);
  }
  if (stops) return 0;
  EXPECT_FALSE(run(2, false).aborted);
  return rig.boosted.optimizer->grad_norm();
}

// An abort also drops gradients that were accumulated before: the full step is repeated.
TEST(GivenUp, AnAccumulationIsDroppedAsAWhole) {
  for (const int zero : {0, 2}) {
    SCOPED_TRACE(zero);
    const Config config = stop_config({.name = "", .layout = {.data = 2}, .zero = zero});
    EXPECT_EQ(start_ranks()(config,
                            [&](World& world) {
                              Rig rig(world, config), fresh(world, config);
                              accumulate(rig, world, /*stops=*/true);
                              EXPECT_EQ(accumulate(rig, world, /*stops=*/false),
                                        accumulate(fresh, world, /*stops=*/false));
                            }),
              0);
  }
}

}  // namespace
}  // namespace gantry::testing
