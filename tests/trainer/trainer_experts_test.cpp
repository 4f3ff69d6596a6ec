// The expert metrics of a run, and its warning about starved experts.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/trainer/expert_watch.h"
#include "gantry/trainer/train.h"
#include "gantry/trainer/trainer.h"
#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kTokens = 4 * 8, kUsed = 2, kHidden = 16, kLayers = 2, kExperts = 3;

std::vector<json> metrics_of(const std::string& layout) {
  const ScratchFolder scratch;
  const std::string text = some_letters(300);
  const Config config = Config::parse(fmt::format(
      "model: {{policy: mixtral, config: {{hidden_size: {}, intermediate_size: 12, num_hidden_layers: {}, "
      "num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 256, num_local_experts: {}, "
      "num_experts_per_tok: {}}}}}\nparallel: {{{}}}\nprecision: float64\n"
      "data: {{format: text, path: \"{}\", sequence_length: 8, batch_size: 4}}\ntrain: {{steps: 3}}\noutput: \"{}\"\n",
      kHidden, kLayers, kExperts, kUsed, layout, scratch.write("text.txt", text), scratch / "run"));
  EXPECT_EQ(train(config), 0);
  std::vector<json> lines;
  std::istringstream file(read_file(scratch / "run/metrics.jsonl"));
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line).at("experts"));
  return lines;
}

TEST(TrainerExperts, MetricsHaveTheTokensOfEachExpertInEveryLayout) {
  const auto one = metrics_of("data: 1"), stages = metrics_of("data: 2, expert: 2, pipeline: 2");
  ASSERT_EQ(one.size(), 3u);
  ASSERT_EQ(stages.size(), 3u);
  for (std::size_t step = 0; step < one.size(); ++step) {
    EXPECT_EQ(stages[step]["layers"], one[step]["layers"]) << step;
    ASSERT_EQ(one[step]["layers"].size(), static_cast<std::size_t>(kLayers));
    for (const auto& layer : one[step]["layers"]) {
      const auto tokens = layer["tokens"].get<std::vector<int>>();
      ASSERT_EQ(tokens.size(), static_cast<std::size_t>(kExperts));
      EXPECT_EQ(tokens[0] + tokens[1] + tokens[2], kTokens * kUsed);
      EXPECT_DOUBLE_EQ(layer["largest_over_mean"].get<double>(),
                       *std::max_element(tokens.begin(), tokens.end()) * 3.0 / (kTokens * kUsed));
    }
    EXPECT_EQ(one[step]["layers"][1]["router"], "layers.1.mlp.gate");
    EXPECT_EQ(one[step]["dropped"], 0);
    EXPECT_EQ(stages[step]["dropped"], 0);
    // Dispatch and combine, in the forward and in the backward.
    EXPECT_EQ(stages[step]["all_to_all_bytes"].get<double>(), 4.0 * kTokens * kUsed * kHidden * 8 * kLayers / 4);
    EXPECT_GT(stages[step]["all_to_all_seconds"].get<double>(), 0);
    EXPECT_EQ(one[step]["all_to_all_bytes"], 0);
  }
}

StepMetrics step_with(std::int64_t step, const std::vector<std::int64_t>& second) {
  StepMetrics metrics{.step = step};
  metrics.experts.layers = {{.router = "layers.0.gate", .tokens = {90, 100, 110}},
                            {.router = "layers.1.gate", .tokens = second}};
  return metrics;
}

// All warnings of `steps` steps, the first of which is `from`.
std::vector<std::string> said(ExpertWatch& watch, std::int64_t from, int steps,
                              const std::vector<std::int64_t>& second) {
  std::vector<std::string> lines;
  for (std::int64_t step = from; step < from + steps; ++step)
    if (const std::string line = watch.add(step_with(step, second)); !line.empty()) lines.push_back(line);
  return lines;
}

TEST(TrainerExperts, AStarvingExpertIsNamedOnceUntilItRecovers) {
  ExpertWatch watch;
  EXPECT_TRUE(said(watch, 1, 20, {5, 140, 155}).empty()) << "one in twenty";
  const auto lines = said(watch, 21, 20, {4, 141, 155});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0],
              HasSubstr("expert 0 of layers.1.gate had 40 of 3000 choices in steps 21 to 30: less than a 20th"));
  EXPECT_TRUE(said(watch, 41, 10, {100, 100, 100}).empty());
  const auto again = said(watch, 51, 10, {0, 0, 300});
  ASSERT_EQ(again.size(), 1u);
  EXPECT_THAT(
      again[0],
      HasSubstr("expert 0 of layers.1.gate had 0 of 3000 choices in steps 51 to 60, and 1 more experts are starved"));
}

TEST(TrainerExperts, FewTokensSayNothing) {
  ExpertWatch watch;
  EXPECT_TRUE(said(watch, 1, 30, {0, 2, 2}).empty()) << "fewer than twenty for each expert";
}

}  // namespace
}  // namespace gantry::testing
