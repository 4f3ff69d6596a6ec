// resolve_config() and configured_step(): the values that follow from a configuration, as a program reads them.
#include "gantry/planner/resolved_config.h"

#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/planner/configured_step.h"

namespace gantry::planner {
namespace {

constexpr const char* kModel =
    "model: {policy: mixtral, config: {num_hidden_layers: 4, num_local_experts: 6, hidden_size: 64, "
    "num_attention_heads: 4, num_key_value_heads: 4}}\n"
    "data: {format: text, path: x.txt, sequence_length: 16, batch_size: 8}\n";

Config config_with(const std::vector<std::string>& overrides) { return Config::parse(kModel, "test", overrides); }

TEST(ResolvedConfig, HasMeshStagesStepContextAndExperts) {
  const ResolvedConfig resolved = resolve_config(
      config_with({"parallel.pipeline=2", "parallel.data=2", "parallel.context=2", "parallel.expert=4"}));
  EXPECT_EQ(resolved.mesh.size(), 8);
  ASSERT_EQ(resolved.layers.size(), 2u);
  EXPECT_EQ(resolved.layers[1].begin, 2);
  EXPECT_EQ(ranks_of_stages(resolved.stages), (std::vector<int>{0, 1}));
  ASSERT_TRUE(resolved.step);
  EXPECT_EQ(resolved.step->replica_samples, 4);
  EXPECT_EQ(resolved.step->microbatches, 4);
  EXPECT_DOUBLE_EQ(resolved.step->simulation.bubble_rate, 1.0 / 5);  // (p - 1) / (m + p - 1)
  ASSERT_TRUE(resolved.context);
  EXPECT_EQ(resolved.context->shard.ranks, 2);
  EXPECT_TRUE(resolved.context->bytes_of_layer.contains("ring"));
  ASSERT_TRUE(resolved.experts);
  EXPECT_EQ(resolved.experts->held.size(), 4u);
  EXPECT_FALSE(resolved.recompute);
}

TEST(ResolvedConfig, HasOnlyWhatTheConfigurationDefines) {
  const ResolvedConfig resolved = resolve_config(Config::parse("model: {policy: mixtral}\n"));
  EXPECT_EQ(resolved.mesh.size(), 1);
  EXPECT_FALSE(resolved.step);
  EXPECT_FALSE(resolved.context);
  EXPECT_FALSE(resolved.experts);
}

TEST(ConfiguredStep, HasTheScheduleAndItsCosts) {
  const ConfiguredStep step = configured_step(config_with({"parallel.pipeline=2"}), 3);
  EXPECT_EQ(step.schedule.ranks(), 2);
  EXPECT_EQ(step.schedule.microbatches, 3);
  ASSERT_EQ(step.costs.stages.size(), 2u);
  EXPECT_NEAR(step.costs.stages[0].forward + step.costs.stages[1].forward, 2, 1e-12);  // 1 on the average rank
  EXPECT_THROW(configured_step(Config::parse("model: {policy: mixtral}\nparallel: {pipeline: 2}\n"), {}), ConfigError);
}

}  // namespace
}  // namespace gantry::planner
