// `gantry plan`: estimates as text and as JSON, and its errors.
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
  const Outcome large = plan("estimate {} --cluster h100_80g --set parallel.tensor=4 --set parallel.pipeline=4");
  EXPECT_EQ(large.exit_code, 3);
  EXPECT_THAT(large.err, HasSubstr("tensor 4 * pipeline 4 * context 1 * data 1 = 16 ranks, and 1 host of 8 devices"));
}

TEST(PlanCommand, TheBestLayoutsAsATableAsJsonAndAsAFile) {
  const ScratchFolder scratch;
  const std::string output = scratch / "best.yaml";
  const Outcome table = plan(
      "{} --cluster h100_80g --ranks 16 --top 3 --explain --why-not tensor=8,parallel.pipeline=2 --output " + output);
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("2 hosts of 8 (h100_80g)"));
  EXPECT_THAT(table.out, HasSubstr("flags of the first layout: --set parallel.tensor="));
  EXPECT_THAT(table.out, HasSubstr("why not tensor=8,parallel.pipeline=2: its best, tensor 8, pipeline 2, data 1"));
  const Json all = Json::parse(plan("{} --cluster h100_80g --ranks 16 --top 3 --json").out);
  ASSERT_EQ(all["best"].size(), 3u);
  const Json& best = all["best"][0];
  EXPECT_LE(best["step_seconds"], all["best"][1]["step_seconds"]);
  const Json again = Json::parse(
      run_program(fmt::format("{} plan estimate {} --cluster h100_80g --json", gantry_program(), output)).out);
  EXPECT_EQ(again["step_seconds"], best["step_seconds"]);
  EXPECT_EQ(again["memory_bytes"], best["memory_bytes"]);
}

TEST(PlanCommand, APageHasTheBestTheFrontAndWhatMoreWouldGive) {
  const ScratchFolder scratch;
  const std::string output = scratch / "plan.html";
  const Outcome run = plan("{} --cluster h100_80g --ranks 16 --top 3 --explain --page " + output);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("with 1 GiB more memory: "));
  EXPECT_THAT(run.out, HasSubstr("with twice the rate between hosts: "));
  const std::string page = read_file(output);
  for (const char* part : {"Time of a step", "Memory of the fullest rank", "title=\"activations: ", "<circle",
                           "twice the rate within hosts", "</html>"})
    EXPECT_THAT(page, HasSubstr(part));
  const auto count = [&](const std::string& words) {
    std::size_t found = 0;
    for (auto at = page.find(words); at != page.npos; at = page.find(words, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("title=\"compute: "), 3u);
  EXPECT_GE(count("<circle"), 2u);
}

// As `gantry train` would choose it, and as `gantry plan` estimates what was chosen.
TEST(PlanCommand, ConfigShowsWhatIsChosenForACluster) {
  const ScratchFolder scratch;
  const std::string path = scratch.write("c.yaml", kPlanned);
  const auto show = [&](const std::string& flags) {
    return run_program(fmt::format("{} config {} {}", gantry_program(), path, flags));
  };
  const Outcome alone = show("--set parallel=auto");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("parallel.zero), but there is no --cluster to plan for"));
  const Outcome chosen = show("--set parallel=auto --cluster h100_80g --json");
  ASSERT_EQ(chosen.exit_code, 0) << chosen.err;
  const Json all = Json::parse(chosen.out);
  EXPECT_THAT(all["plan"].get<std::string>(), HasSubstr("plan for 8 ranks of h100_80g: tensor "));
  EXPECT_EQ(all["mesh"]["size"], 8);
  EXPECT_EQ(all["config"]["parallel"]["data"].get<int>() * all["config"]["parallel"]["tensor"].get<int>() *
                all["config"]["parallel"]["pipeline"].get<int>(),
            8);
  const Outcome stated = show("--set parallel.tensor=2 --cluster h100_80g");
  ASSERT_EQ(stated.exit_code, 0) << stated.err;
  EXPECT_THAT(stated.out, HasSubstr("\nestimate for 8 ranks of h100_80g: tensor 2, pipeline 1, data 4"));
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
  refused("estimate {} --cluster h100_80g --ranks 8 --set parallel.tensor=2 --set parallel.data=2", 3, "= 4 ranks");
  refused("estimate {} --cluster h100_80g --set parallel.order=[tp,dp,pp]", 3, "parallel.order");
  refused("estimate {} --cluster h100_80g", 3, "is not known here, or is not a decoder",
          "model: {policy: bert}\ndata: {format: text, path: x}\n");
  refused("estimate {} --cluster h100_80g", 3, "data: the section is missing", "model: {policy: llama}\n");
  refused("{}", 2, "--cluster is missing");
  refused("{} --cluster h100_80g --ranks 12", 3, "12 ranks do not fill hosts of 8 devices");
  refused("{} --cluster h100_80g --ranks 1 --set schedule.microbatch_size=64", 3,
          "no layout fits: the nearest, tensor 1");
  refused("{} --cluster h100_80g --ranks 8 --set parallel.tensor=3", 3,
          "tensor 3 does not divide 8 ranks; expected sizes that are compatible; with parallel.tensor open, tensor ");
  refused("{} --cluster h100_80g --ranks 8 --set parallel.tensor=4 --set parallel.pipeline=4", 3,
          "pipeline 4 does not divide the 2 ranks that tensor 4 leaves");
  refused("{} --cluster h100_80g --ranks 8 --set parallel.tensor=1 --set parallel.pipeline=1 --set data.batch_size=7",
          3, "8 replicas do not divide a batch of 7 samples");
  refused("{} --cluster h100_80g --ranks 16 --set parallel.tensor=2 --set parallel.pipeline=2 --set parallel.data=2", 3,
          "= 8 ranks, and 2 hosts of 8 devices have 16");
  refused("{} --cluster h100_80g --ranks 8 --why-not tensors=3", 2, "'tensors=3' is not a KEY=VALUE of a layout");
  refused("{} --cluster h100_80g --ranks 8 --json --explain", 2, "--json: the comparison of --explain is text");
}

}  // namespace
}  // namespace gantry::testing
