// `gantry plan`: estimates as text and as JSON, and what it refuses.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kPlanned =
    "model: {policy: llama, config: {hidden_size: 4096, num_hidden_layers: 32, num_attention_heads: 32}}\n"
    "data: {format: text, path: x.txt, sequence_length: 2048, batch_size: 256}\nprecision: bfloat16\n";

Outcome plan(const std::string& arguments, const std::string& text = kPlanned) {
  const ScratchFolder scratch;
  const std::string path = scratch.write("c.yaml", text);
  return run_program(fmt::format("{} plan {}", gantry_program(), fmt::format(fmt::runtime(arguments), path)));
}

TEST(PlanCommand, AnEstimateHasTheseKeys) {
  const Outcome run = plan(
      "estimate {} --cluster h100_80g --json --set parallel.tensor=2 --set parallel.pipeline=2 --set parallel.data=4");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json result = Json::parse(run.out);
  std::vector<std::string> keys;
  for (const auto& [key, value] : result.items()) keys.push_back(key);
  EXPECT_THAT(keys, ::testing::UnorderedElementsAre("step_seconds", "tokens_per_second", "mfu", "memory_bytes",
                                                    "bubble", "seconds", "fits"));
  double sum = 0;
  for (const char* part : {"compute", "tensor", "context", "expert", "pipeline", "data", "optimizer"})
    sum += result["seconds"].at(part).get<double>();
  EXPECT_EQ(result["seconds"].size(), 7u);
  EXPECT_NEAR(sum, result["step_seconds"].get<double>(), 1e-9);
  EXPECT_EQ(result["memory_bytes"].size(), 2u);
  EXPECT_TRUE(result["fits"].is_boolean());
}

TEST(PlanCommand, ReplicasFollowFromTheRanks) {
  const Outcome run = plan("estimate {} --cluster h100_80g --hosts 2 --set parallel.tensor=4");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("tensor 4, pipeline 1, data 4"));
  EXPECT_THAT(run.out, HasSubstr("on 2 hosts of 8 (h100_80g)"));
}

TEST(PlanCommand, RefusesInOneLine) {
  const auto refused = [](const std::string& arguments, int exit_code, const std::string& words,
                          const std::string& text = kPlanned) {
    const Outcome run = plan(arguments, text);
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_THAT(run.err, HasSubstr(words));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  };
  refused("estimate {} --cluster h100", 3, "'h100' is not known");
  refused("estimate {} --cluster h100_80g --hosts 2 --set parallel.tensor=4 --set parallel.data=3", 3, "= 12 ranks");
  refused("estimate {} --cluster h100_80g --set parallel.order=[tp,dp,pp]", 3, "parallel.order");
  refused("estimate {} --cluster h100_80g", 3, "is no described decoder",
          "model: {policy: bert}\ndata: {format: text, path: x}\n");
  refused("estimate {} --cluster h100_80g", 3, "data: is missing", "model: {policy: llama}\n");
  refused("measure", 2, "measure");
}

}  // namespace
}  // namespace gantry::testing
