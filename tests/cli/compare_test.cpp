// `gantry compare`: its output and its exit codes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

std::string compared_config(const ScratchFolder& scratch, const std::string& rest = "") {
  return scratch.write("compare.yaml",
                       "model: {policy: gpt2, config: {n_embd: 8, n_layer: 2, n_head: 2, vocab_size: 256, "
                       "n_positions: 16, resid_pdrop: 0.1}}\ncomm: {threads_per_rank: 1}\n" +
                           rest);
}

Outcome compare(const std::string& config, const std::string& arguments = "") {
  return run_program(fmt::format("{} compare {} {}", gantry_program(), config, arguments));
}

TEST(Compare, SaysForEachLayoutThatItIsEqual) {
  const ScratchFolder scratch;
  const Outcome run = compare(compared_config(scratch),
                              "--with parallel.tensor=2 --with 'parallel.pipeline=2,parallel.sequence_parallel=true' "
                              "--set parallel.data=2");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out,
            "parallel.tensor=2: equal (18 outputs, 28 gradients)\n"
            "parallel.pipeline=2,parallel.sequence_parallel=true: equal (18 outputs, 28 gradients)\n");
  EXPECT_EQ(run.err, "");
}

TEST(Compare, TakesItsBatchFromTheConfiguredData) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("text.txt", std::string(400, 'a') + std::string(400, 'b'));
  const Outcome run =
      compare(compared_config(scratch, fmt::format("data: {{format: text, path: \"{}\", sequence_length: 8, "
                                                   "batch_size: 4}}\nparallel: {{tensor: 2}}\n",
                                                   text)));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "as configured: equal (18 outputs, 28 gradients)\n");
  EXPECT_THAT(compare(scratch / "compare.yaml", "--set data.path=" + (scratch / "none")).err,
              HasSubstr("matches no file"));
}

// The same model and tokens without the directory's weights have another loss.
TEST(Compare, WeightsAreThoseOfTheModelsPath) {
  const ScratchFolder scratch;
  const std::string golden = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/gpt2";
  const auto loss = [&](const std::string& model) {
    const Outcome run = compare(scratch.write("golden.yaml", "model: {" + model + "}\n"),
                                "--with parallel.tensor=2 --with parallel.pipeline=2 --json");
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    return nlohmann::json::parse(run.out)[1]["loss"].get<double>();
  };
  EXPECT_NE(loss("path: " + golden), loss("policy: gpt2, config: " + read_file(golden + "/config.json")));
}

// Without any tolerance rounding is a difference.
TEST(Compare, ADifferenceHasTheExitCodeOfNumbersAndIsNamed) {
  const ScratchFolder scratch;
  const std::string config = compared_config(scratch);
  const Outcome run = compare(config, "--with parallel.tensor=2 --tolerance 0");
  EXPECT_EQ(run.exit_code, 8) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("parallel.tensor=2: differs\n"));
  EXPECT_THAT(run.out, HasSubstr("  gradient: wte.weight by "));
  const Outcome json = compare(config, "--with parallel.tensor=2 --with parallel.tensor=5 --tolerance 0 --json");
  EXPECT_EQ(json.exit_code, 8) << json.err;
  const auto all = nlohmann::json::parse(json.out);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_FALSE(all[0]["equal"].get<bool>());
  EXPECT_EQ(all[0]["outputs_compared"], 18);
  EXPECT_TRUE(all[0]["first_output"]["has_run"].get<bool>());
  EXPECT_GT(all[0]["wrong_gradients"][0]["largest"].get<double>(), 0);
  EXPECT_LT(all[0]["wrong_gradients"][0]["relative"].get<double>(), 1e-10);
  EXPECT_THAT(all[1]["error"].get<std::string>(), HasSubstr("over 5 ranks"));
  EXPECT_TRUE(all[1]["loss"].is_null());
}

TEST(Compare, ALayoutThatCannotBeBuiltIsNamedAndTheOthersRun) {
  const ScratchFolder scratch;
  const Outcome run = compare(compared_config(scratch), "--with parallel.pipeline=3 --with parallel.pipeline=2");
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_THAT(run.out, HasSubstr("parallel.pipeline=3: failed: "));
  EXPECT_THAT(run.out, HasSubstr("2 layers over 3 stages"));
  EXPECT_THAT(run.out, HasSubstr("parallel.pipeline=2: equal (18 outputs"));
  EXPECT_EQ(run.err, "");
}

TEST(Compare, BadUsageIsOneLine) {
  const ScratchFolder scratch;
  const std::string config = compared_config(scratch);
  const std::pair<const char*, const char*> wrong[] = {
      {"--with train.seed=2", "'train.seed=2' is not a key of a layout"},
      {"--with parallel.tensor", "'parallel.tensor' is not a key of a layout"},
      {"--tolerance -1", "tolerance"},
      {"--wiht parallel.tensor=2", "did you mean '--with'?"}};
  for (const auto& [arguments, said] : wrong) {
    const Outcome run = compare(config, arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_THAT(run.err, HasSubstr(said));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

}  // namespace
}  // namespace gantry::testing
