// Calibration finds the rates of a cluster from measured steps, and the comparison reports the largest gap.
#include "gantry/planner/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/models/described/decoder_family.h"

namespace gantry::planner {
namespace {

using ::testing::HasSubstr;

Workload calibrated_llama() {
  return {
      .model = models::decoder_spec(
          "llama",
          {{"hidden_size", 1024}, {"intermediate_size", 2816}, {"num_hidden_layers", 8}, {"num_attention_heads", 16}}),
      .sequence = 1024,
      .batch = 32,
      .precision = "bfloat16",
      .program = gantry_program("bfloat16", {})};
}

std::vector<MeasuredStep> steps_on(const Cluster& cluster) {
  std::vector<MeasuredStep> steps;
  for (const Layout& layout : {Layout{.tensor = 4}, Layout{.pipeline = 2, .data = 2}, Layout{.data = 8, .zero = 1}})
    steps.push_back({calibrated_llama(), layout,
                     estimate(calibrated_llama(), layout, with_ranks(cluster, layout.ranks(), true)).seconds});
  return steps;
}

// Steps "measured" on a cluster that is slower, or faster than its peaks: after calibration, estimates equal
// measurements.
TEST(Calibration, FindsTheRatesOfTheStepsAgain) {
  const Cluster start = load_cluster("a100_80g");
  for (const auto& [device, links] : {std::pair(1.7, 2.5), {1.0, 0.5}, {0.6, 1.0}}) {
    Cluster real = start;
    slow_device(real.device, device);
    slow_link(real.within, links);
    slow_link(real.between, links);
    real.step_seconds = 0.02;
    const auto steps = steps_on(real);
    const Calibration made = calibrate(start, steps);
    EXPECT_NEAR(made.device / device, 1, 1e-3);
    EXPECT_NEAR(made.links / links, 1, 1e-2);
    EXPECT_NEAR(made.cluster.step_seconds, 0.02, 1e-4);
    EXPECT_LE(made.cluster.device.matrix_efficiency, 1);
    for (const MeasuredStep& step : steps) {
      const auto on = with_ranks(made.cluster, step.layout.ranks(), true);
      EXPECT_NEAR(estimate(step.workload, step.layout, on).step_seconds / step.seconds.sum(), 1, 2e-3);
    }
  }
  EXPECT_THROW(calibrate(start, {}), UsageError);
}

TEST(Calibration, WithoutCollectivesLinksStay) {
  const Cluster start = load_cluster("a100_80g");
  const Seconds once = estimate(calibrated_llama(), {}, with_ranks(start, 1, true)).seconds;
  const Calibration made = calibrate(start, {{calibrated_llama(), {}, once.times(2)}});
  EXPECT_NEAR(made.device, 2, 1e-9);
  EXPECT_EQ(made.links, 1);
  EXPECT_EQ(made.cluster.within.bytes_per_second, start.within.bytes_per_second);
}

TEST(StepComparison, NamesTheLargestGap) {
  const StepFacts predicted{{.compute = 1, .tensor = 0.5}, {4e6, 5e6}};
  const StepFacts measured{{.compute = 1.1, .tensor = 0.9}, {4e6, 5.5e6}};
  const auto all = gaps(predicted, measured);
  ASSERT_EQ(all.size(), 3u);  // parts that are 0 in both have no gap
  EXPECT_EQ(describe(all[0]), "tensor: 0.5 s predicted, 0.9 s measured");
  EXPECT_NEAR(all[0].share, 0.2, 1e-12);
  EXPECT_EQ(describe(all[1]), "memory: 5 MB predicted, 5.5 MB measured");
  EXPECT_EQ(all[2].part, "compute");
}

TEST(StepComparison, ReadsWhatItWrites) {
  const StepFacts facts{{.compute = 1, .data = 0.25, .optimizer = 2}, {7}};
  const auto json = nlohmann::json::parse(to_json(facts).dump());
  EXPECT_EQ(json["step_seconds"], 3.25);
  const Seconds again = seconds_of_json(json, "here");
  EXPECT_EQ(again.data, 0.25);
  EXPECT_EQ(again.sum(), 3.25);
  for (const char* text : {"null", "{\"seconds\": {\"compute\": 1}}", "{\"seconds\": {\"compute\": \"x\"}}"}) try {
      seconds_of_json(nlohmann::json::parse(text), "here");
      FAIL() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("here: there are no seconds for"));
    }
}

}  // namespace
}  // namespace gantry::planner
