// Plans with less memory, and with more memory or faster links.
#include "gantry/planner/plan.h"

#include <gtest/gtest.h>

#include "program.h"

namespace gantry::planner {
namespace {

PlanRequest what_if_request() {
  const gantry::testing::ScratchFolder scratch;
  return read_plan_request(
      scratch.write("c.yaml",
                    "model: {policy: llama, config: {hidden_size: 2048, intermediate_size: 5632, num_hidden_layers: "
                    "12, num_attention_heads: 16}}\ndata: {format: text, path: x, sequence_length: 2048, batch_size: "
                    "32}\nprecision: bfloat16\nschedule: {recompute: none}\n"),
      {}, /*only_stated=*/false);
}

// No layout is at least as good in both time and memory, and better in one of them.
TEST(WhatIfs, TheFrontIsBeatenByNoLayout) {
  const PlanRequest request = what_if_request();
  const Cluster cluster = with_ranks(load_cluster("a100_80g"), 4, true);
  const auto front = pareto_front(request, cluster, 100);
  ASSERT_GE(front.size(), 2u);
  const auto all = search(request, cluster, {.top = 100'000, .prunes = false}).best;
  for (const PlannedLayout& one : front)
    for (const PlannedLayout& other : all)
      EXPECT_FALSE(other.estimate.step_seconds < one.estimate.step_seconds * (1 - 1e-9) &&
                   other.estimate.most_memory() <= one.estimate.most_memory());
  for (std::size_t i = 1; i < front.size(); ++i) {
    EXPECT_GE(front[i].estimate.step_seconds, front[i - 1].estimate.step_seconds);
    EXPECT_LT(front[i].estimate.most_memory(), front[i - 1].estimate.most_memory());
  }
  EXPECT_EQ(pareto_front(request, cluster, 1).size(), 1u);
}

TEST(WhatIfs, MoreIsNoSlower) {
  const PlanRequest request = what_if_request();
  const Cluster cluster = with_ranks(load_cluster("a100_80g"), 16, true);
  const double now = search(request, cluster, {.top = 1}).best.front().estimate.step_seconds;
  const auto changes = what_if(request, cluster);
  ASSERT_EQ(changes.size(), 3u);
  for (const WhatIf& each : changes) EXPECT_LE(each.best.estimate.step_seconds, now) << each.change;
  EXPECT_EQ(what_if(request, with_ranks(cluster, 8, true)).size(), 2u);  // one host
}

}  // namespace
}  // namespace gantry::planner
