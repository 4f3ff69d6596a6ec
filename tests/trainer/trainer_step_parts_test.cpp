// The parts of a step's measured time, and a run's comparison of them with the plan.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/trainer/step_parts.h"
#include "gantry/trainer/train.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

CommunicationCount waited(const char* axis, double seconds) { return {axis, "all_reduce", 1, 8, seconds}; }

TEST(StepParts, CollectivesWithinActionsAreNoComputing) {
  StepParts parts(/*reduces_within=*/false, /*has_pipeline=*/false);
  parts.add(9, 5, {waited("tp", 1), waited("dp", 2), waited("pp+dp+tp", 0.25)});
  const planner::Seconds step = parts.mean();
  EXPECT_EQ(step.compute, 4);
  EXPECT_EQ(step.tensor, 1);
  EXPECT_EQ(step.data, 2);
  EXPECT_EQ(step.optimizer, 2);  // the rest of the step
  EXPECT_EQ(step.sum(), 9);
}

TEST(StepParts, RanksOfAPipelineWaitForItsEndInTheCollectivesOfAll) {
  for (const bool has_pipeline : {false, true}) {
    StepParts parts(/*reduces_within=*/false, has_pipeline);
    parts.add(10, 5, {waited("pp+dp+tp", 3)});
    EXPECT_EQ(parts.mean().pipeline, has_pipeline ? 3 : 0);
    EXPECT_EQ(parts.mean().optimizer, has_pipeline ? 2 : 5);
  }
}

// Waits are counted from the start of the run. The first step does not count, nor does an aborted one.
TEST(StepParts, EachStepHasItsOwnTimes) {
  StepParts parts(/*reduces_within=*/true, /*has_pipeline=*/true);
  parts.add(100, 90, {waited("dp+cp", 50)});
  parts.add(10, 6, {waited("dp+cp", 51), waited("pp", 2), waited("ep", 0.5)});
  parts.give_up({waited("dp+cp", 99), waited("pp", 2), waited("ep", 0.5)});
  parts.add(12, 8, {waited("dp+cp", 102), waited("pp", 2), waited("ep", 1), waited("edp", 1)});
  const planner::Seconds mean = parts.mean();
  EXPECT_EQ(parts.steps(), 2u);
  EXPECT_EQ(mean.data, (1 + 4) / 2.0);
  EXPECT_EQ(mean.pipeline, 1);
  EXPECT_EQ(mean.expert, 0.5);
  EXPECT_EQ(mean.compute, ((6 - 1 - 0.5) + (8 - 4 - 0.5)) / 2);
  EXPECT_EQ(mean.sum(), 11);
}

Config planned_config(const ScratchFolder& scratch, const std::string& keys) {
  const std::string text = some_letters(600);
  return Config::parse(fmt::format(
      "model: {{policy: llama, config: {{hidden_size: 32, intermediate_size: 48, num_hidden_layers: 4, "
      "num_attention_heads: 4, vocab_size: 256}}}}\n"
      "data: {{format: text, path: \"{}\", sequence_length: 16, batch_size: 8}}\ntrain: {{steps: 3}}\noutput: \"{}\"\n"
      "{}",
      scratch.write("text.txt", text), scratch / "run", keys));
}

// The parts add up to the step, and each axis of a layout has communication in its part.
TEST(PlannedRun, SetsPredictedWithMeasured) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> layouts = {
      {"parallel: {tensor: 2, pipeline: 2}\nschedule: {microbatches: 4}\n", {"tensor", "pipeline"}},
      {"parallel: {data: 2, context: 2, zero: 2}\n", {"context", "data"}}};
  for (const auto& [keys, communicating] : layouts) {
    const ScratchFolder scratch;
    const Config config = planned_config(scratch, keys);
    ASSERT_EQ(train(config, {.cluster = planner::load_cluster("a100_80g")}), 0);
    const Json plan = Json::parse(read_file(scratch / "run/report.json"))["plan"];
    EXPECT_EQ(plan["steps"], 2) << "all but the first";
    EXPECT_EQ(plan["cluster"], "a100_80g");
    for (const char* which : {"measured", "predicted"}) {
      double sum = 0;
      for (const auto& [part, seconds] : plan[which]["seconds"].items()) sum += seconds.get<double>();
      EXPECT_NEAR(sum, plan[which]["step_seconds"].get<double>(), 1e-9) << which;
      EXPECT_EQ(plan[which]["memory_bytes"].size(), keys.find("pipeline") == std::string::npos ? 1u : 2u) << which;
      for (const std::string& part : communicating)
        EXPECT_GT(plan[which]["seconds"][part], 0) << which << " " << part << " of " << keys;
    }
    EXPECT_THAT(plan["largest_gap"]["text"].get<std::string>(), HasSubstr(" measured"));
    EXPECT_THAT(read_file(scratch / "run/report.html"), HasSubstr("\"largest_gap\""));
  }
}

TEST(PlannedRun, WithoutAClusterNothingIsPredicted) {
  const ScratchFolder scratch;
  ASSERT_EQ(train(planned_config(scratch, "")), 0);
  const Json plan = Json::parse(read_file(scratch / "run/report.json"))["plan"];
  EXPECT_GT(plan["measured"]["seconds"]["compute"], 0);
  EXPECT_FALSE(plan.contains("predicted"));
}

TEST(PlannedRun, WhatCanNotBePredictedIsRefusedBeforeTheFirstStep) {
  const ScratchFolder scratch;
  const Config config = planned_config(scratch, "parallel: {order: [tp, dp, pp]}\n");
  EXPECT_EQ(train(config, {.cluster = planner::load_cluster("a100_80g")}), ConfigError::kExitCode);
}

}  // namespace
}  // namespace gantry::testing
