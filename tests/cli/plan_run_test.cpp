// `gantry plan measure`, a run that is planned with the measured cluster, and `gantry plan calibrate`.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PlannedTraining, MeasuresPlansTrainsAndCalibrates) {
  const ScratchFolder scratch;
  const std::string cluster = scratch / "here.yaml", calibrated = scratch / "calibrated.yaml";
  const Outcome measured = run_program(gantry_program() + " plan measure --ranks 2 --output " + cluster);
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_THAT(read_file(cluster), HasSubstr("# gantry plan measure: 2 ranks over local"));
  EXPECT_THAT(read_file(cluster), HasSubstr("float64: "));

  const std::string text = some_letters(600);
  scratch.write("text.txt", text);
  const std::string config = scratch.write(
      "c.yaml", fmt::format("model: {{policy: llama, config: {{hidden_size: 32, intermediate_size: 48, "
                            "num_hidden_layers: 4, num_attention_heads: 4, vocab_size: 256}}}}\nparallel: auto\n"
                            "data: {{format: text, path: \"{0}/text.txt\", sequence_length: 16, batch_size: 8}}\n"
                            "train: {{steps: 3}}\noutput: \"{0}/run\"\n",
                            scratch.path()));
  const Outcome alone = run_program(gantry_program() + " train " + config);
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("parallel.zero), but there is no --cluster to plan for"));
  const Outcome run = run_program(fmt::format("{} train {} --cluster {}", gantry_program(), config, cluster));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("plan for 2 ranks of "));
  EXPECT_THAT(run.out, HasSubstr("largest gap from the plan: "));
  EXPECT_THAT(read_file(scratch / "run/config.yaml"), Not(HasSubstr("tensor: auto")));
  EXPECT_THAT(read_file(scratch / "run/config.yaml"), HasSubstr("microbatch_size: "));

  const Outcome made = run_program(fmt::format("{} plan calibrate {}/run --cluster {} --output {}", gantry_program(),
                                               scratch.path(), cluster, calibrated));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("computation takes "));
  const Outcome again = run_program(fmt::format("{} plan estimate {}/run/config.yaml --cluster {} --json",
                                                gantry_program(), scratch.path(), calibrated));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const auto report = nlohmann::json::parse(read_file(scratch / "run/report.json"));
  const double computed = report["plan"]["measured"]["seconds"]["compute"];
  EXPECT_NEAR(nlohmann::json::parse(again.out)["seconds"]["compute"].get<double>() / computed, 1, 0.01);
}

TEST(PlannedTraining, RefusesInOneLine) {
  const auto refused = [](const std::string& arguments, int exit_code, const std::string& words) {
    const Outcome run = run_program(gantry_program() + " " + arguments);
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_THAT(run.err, HasSubstr(words));
  };
  refused("plan measure --ranks 0", 2, "--ranks");
  refused("plan calibrate /none --cluster h200", 4, "/none/report.json: the file cannot be read");
  refused("plan calibrate", 2, "runs");
}

}  // namespace
}  // namespace gantry::testing
