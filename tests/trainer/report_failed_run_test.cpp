// A run that fails leaves a report of the steps before the failure, and still prints its own error.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "background.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int kNumericalError = 8;

// A training run whose loss is not finite in the second step.
std::string failing_training(const ScratchFolder& scratch, const std::string& sets = "") {
  const std::string config = scratch.write(
      "train.yaml",
      fmt::format(
          "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 16}}}}\n"
          "parallel: {{pipeline: 2}}\ndata: {{format: text, path: \"{}\", sequence_length: 16, batch_size: 4}}\n"
          "optimizer: {{lr: 1.0e+30}}\ntrain: {{steps: 9}}\noutput: \"{}\"\n",
          scratch.write("corpus.txt", std::string(4096, 'a')), scratch / "run"));
  return fmt::format("{} train {} {}", gantry_program(), config, sets);
}

void expect_one_error(const Outcome& run) {
  EXPECT_EQ(run.exit_code, kNumericalError) << run.err;
  EXPECT_THAT(run.err, HasSubstr("gradient norm"));
  EXPECT_EQ(run.err.find("error: "), run.err.rfind("error: ")) << run.err;
}

void expect_report_of_metrics(const std::string& folder) {
  const std::string lines = read_file(folder + "/metrics.jsonl"), page = read_file(folder + "/report.html");
  const std::string mark = "id=\"data\">";
  const auto begin = page.find(mark) + mark.size();
  const Json data = Json::parse(page.substr(begin, page.find("</script>", begin) - begin), nullptr, false);
  ASSERT_TRUE(data.is_object()) << page.substr(0, 400);
  EXPECT_EQ(static_cast<long>(data["metrics"]["loss"].size()), std::count(lines.begin(), lines.end(), '\n'));
  EXPECT_GE(data["metrics"]["loss"].size(), 1u);
  EXPECT_THAT(data["run"]["failure"].get<std::string>(), HasSubstr("gradient norm"));
  EXPECT_EQ(data["live"], false);
  EXPECT_EQ(data["run"]["mesh"]["ranks"].size(), 2u);
  EXPECT_FALSE(fs::exists(folder + "/report.html.partial"));
}

TEST(FailedRun, LeavesAReport) {
  const ScratchFolder scratch;
  expect_one_error(run_program(failing_training(scratch)));
  expect_report_of_metrics(scratch / "run");
}

#ifdef GANTRY_MPIRUN
TEST(FailedRun, OfProcessesLeavesAReport) {
  const ScratchFolder scratch;
  const Outcome run = run_program(fmt::format("{} launch -n 2 -- {}", gantry_program(), failing_training(scratch)));
  EXPECT_EQ(run.exit_code, kNumericalError) << run.err;
  expect_report_of_metrics(scratch / "run");
}
#endif

TEST(FailedRun, LeavesAReportAfterASignalWithoutCheckpoints) {
  const ScratchFolder scratch;
  Background run(failing_training(scratch, "--set optimizer.lr=0.001 --set train.steps=1000000"));
  ASSERT_TRUE(
      run.wait_until([&] { return read_file(scratch / "run/metrics.jsonl").find("\"step\":3") != std::string::npos; }));
  run.signal(SIGINT);
  const Outcome stopped = run.wait();
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr("without a checkpoint, because checkpoint.path is not set"));
  EXPECT_EQ(stopped.err.find("saved"), std::string::npos) << stopped.err;
  EXPECT_THAT(read_file(scratch / "run/report.html"), HasSubstr("id=\"data\">"));
}

TEST(FailedRun, SaysTheSameWhereNoReportCanBeWritten) {
  const ScratchFolder scratch;
  fs::create_directories(scratch / "run/report.html/taken");
  expect_one_error(run_program(failing_training(scratch)));
  EXPECT_TRUE(fs::is_directory(scratch / "run/report.html/taken"));
}

// A run that fails before its first step leaves the files of an earlier run unchanged.
TEST(FailedRun, ThatHasNotBegunLeavesTheEarlierOnesReport) {
  const ScratchFolder scratch;
  ASSERT_EQ(run_program(failing_training(scratch, "--set optimizer.lr=0.001")).exit_code, 0);
  const std::string report = read_file(scratch / "run/report.html");
  const Outcome run = run_program(failing_training(scratch, "--set checkpoint.resume=" + (scratch / "nothing")));
  EXPECT_EQ(run.exit_code, 5) << run.err;
  EXPECT_EQ(read_file(scratch / "run/report.html"), report);
}

}  // namespace
}  // namespace gantry::testing
