// Reads a run's event files with TensorBoard's own reader: they contain the scalars of metrics.jsonl, also if
// the run was resumed from before its last step.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "program.h"

namespace gantry::testing {
namespace {

using Json = nlohmann::json;
using Scalars = std::map<std::string, std::vector<std::pair<std::int64_t, float>>>;

constexpr const char* kReader = R"(
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
print(json.dumps({tag: [[each.step, each.value] for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
)";

// A Python that has TensorBoard: that of ./dev or of the system; empty if neither has it.
const std::string& python_with_tensorboard() {
  static const std::string python = [] {
    for (const std::string each : {GANTRY_SOURCE_DIR "/.deps/venv/bin/python", "python3"})
      if (run_program(each + " -c 'import tensorboard'").exit_code == 0) return each;
    return std::string();
  }();
  return python;
}

Scalars read_by_tensorboard(const ScratchFolder& scratch, const std::string& folder) {
  const Outcome run =
      run_program(fmt::format("{} {} {}", python_with_tensorboard(), scratch.write("reader.py", kReader), folder));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const Json all = Json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  Scalars scalars;
  for (const auto& [tag, values] : all.items())
    for (const auto& value : values) scalars[tag].emplace_back(value[0], value[1]);
  return scalars;
}

Scalars read_metrics(const std::string& folder) {
  const std::pair<const char*, const char*> tags[] = {{"loss", "train/loss"},
                                                      {"grad_norm", "train/grad_norm"},
                                                      {"lr", "train/lr"},
                                                      {"tokens_per_second", "speed/tokens_per_second"},
                                                      {"step_seconds", "speed/step_seconds"},
                                                      {"bubble", "speed/bubble"},
                                                      {"eval_loss", "evaluation/loss"},
                                                      {"perplexity", "evaluation/perplexity"}};
  Scalars scalars;
  std::istringstream lines(read_file(folder + "/metrics.jsonl"));
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text);
    for (const auto& [key, tag] : tags)
      if (line.contains(key)) scalars[tag].emplace_back(line["step"], line[key].get<float>());
  }
  return scalars;
}

std::string evaluated_training(const ScratchFolder& scratch, const std::string& sets) {
  const std::string text = some_letters(3000, 23);
  const std::string config = scratch.write(
      "train.yaml",
      fmt::format(
          "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 16}}}}\n"
          "parallel: {{pipeline: 2}}\ndata: {{format: text, path: \"{}\", sequence_length: 16, batch_size: 4}}\n"
          "evaluation: {{path: \"{}\", every: 2}}\noutput: \"{}\"\n",
          scratch.write("text.txt", text), scratch.write("held_out.txt", text.substr(0, 500)), scratch / "run"));
  return fmt::format("{} train {} {}", gantry_program(), config, sets);
}

TEST(TensorBoard, ReadsTheScalarsOfARunThatWasResumed) {
  if (python_with_tensorboard().empty()) GTEST_SKIP() << "needs TensorBoard: .deps/venv/bin/pip install tensorboard";
  const ScratchFolder scratch;
  const Outcome full = run_program(evaluated_training(
      scratch, "--set train.steps=6 --set checkpoint.every=2 --set checkpoint.path=" + (scratch / "first")));
  ASSERT_EQ(full.exit_code, 0) << full.err;
  const Scalars before = read_by_tensorboard(scratch, scratch / "run/tensorboard");
  EXPECT_EQ(before, read_metrics(scratch / "run"));
  EXPECT_EQ(before.at("train/loss").size(), 6u);
  EXPECT_EQ(before.at("evaluation/loss").size(), 3u);

  // The resumed run discards steps 3 to 6. Step 6 was evaluated, and is not run again.
  const Outcome resumed = run_program(evaluated_training(
      scratch, fmt::format("--set train.steps=5 --set optimizer.lr=0.01 --set evaluation.every=4 --set "
                           "checkpoint.path={} --set checkpoint.resume={}",
                           scratch / "second", scratch / "first/step-000002")));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const Scalars after = read_by_tensorboard(scratch, scratch / "run/tensorboard");
  EXPECT_EQ(after, read_metrics(scratch / "run"));
  const auto& losses = after.at("train/loss");
  ASSERT_EQ(losses.size(), 5u);
  for (int step = 1; step <= 5; ++step) {
    EXPECT_EQ(losses[step - 1].first, step);
    const bool is_kept = losses[step - 1].second == before.at("train/loss")[step - 1].second;
    EXPECT_EQ(is_kept, step <= 3) << step;  // step 3 precedes the first update at the other rate
  }
  EXPECT_EQ(after.at("train/lr")[1].second, before.at("train/lr")[1].second);
  EXPECT_NE(after.at("train/lr")[2].second, before.at("train/lr")[2].second);
}

TEST(TensorBoard, ShowsARestartedRunNextToTheOneBefore) {
  if (python_with_tensorboard().empty()) GTEST_SKIP() << "needs TensorBoard: .deps/venv/bin/pip install tensorboard";
  const ScratchFolder scratch;
  for (const int steps : {4, 2}) {
    const Outcome run = run_program(evaluated_training(scratch, fmt::format("--set train.steps={}", steps)));
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }
  const auto steps_in = [&](const std::string& folder) {
    return read_by_tensorboard(scratch, scratch / folder)["train/loss"].size();
  };
  EXPECT_EQ(steps_in("run/tensorboard"), 2u);
  EXPECT_EQ(steps_in("run/tensorboard.1"), 4u);
}

}  // namespace
}  // namespace gantry::testing
