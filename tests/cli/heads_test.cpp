// Classification heads of each problem_type: `gantry forward` and `gantry train` have the loss of transformers.
#include <algorithm>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/tensors/libtorch.h"
#include "grid.h"
#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kHeads = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/heads/";

void expect_near_tensors(const torch::Tensor& actual, const torch::Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  EXPECT_LT((actual - expected).abs().max().item<double>(), 2e-5) << what;
}

const std::vector<std::string> kKinds = {"bert_one",    "bert_one_of_integers", "bert_several",
                                         "bert_single", "roberta_regression",   "roberta_several",
                                         "vit_one",     "vit_regression",       "vit_several"};

class Heads : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return kHeads + GetParam(); }
  std::size_t index() const { return static_cast<std::size_t>(std::ranges::find(kKinds, GetParam()) - kKinds.begin()); }
  double loss() const { return json::parse(read_file(kHeads + "losses.json"))[GetParam()]; }
  // Runs one step, whose update is too small to matter, and returns the lines of metrics.jsonl.
  std::vector<json> train(const std::string& sets) {
    const std::string config = scratch_.write(
        "train.yaml", fmt::format("model: {{path: {0}}}\ndata: {{format: tensors, path: {0}/batch.safetensors, "
                                  "batch_size: 4, shuffle: false{1}}}\nevaluation: {{path: {0}/batch.safetensors}}\n"
                                  "optimizer: {{lr: 1.0e-12, weight_decay: 0}}\ntrain: {{steps: 1}}\n"
                                  "comm: {{threads_per_rank: 1}}\noutput: {2}\n",
                                  folder(), is_text() ? ", sequence_length: 6" : "", scratch_ / "run"));
    const Outcome run = run_program(gantry_program() + " train " + config + " " + sets, 60);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    std::vector<json> lines;
    std::istringstream file(read_file(scratch_ / "run/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
  }
  bool is_text() const { return !GetParam().starts_with("vit"); }

  ScratchFolder scratch_;
};

TEST_P(Heads, ForwardHasTheLossAndTheGradientsOfTransformers) {
  const Outcome run =
      run_program(fmt::format("{} forward --model {} --batch {}/batch.safetensors --output {} --grads {}",
                              gantry_program(), folder(), folder(), scratch_ / "out", scratch_ / "grads"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const TensorDict expected = read_safetensors(folder() + "/results.safetensors");
  const TensorDict made = read_safetensors(scratch_ / "out"), gradients = read_safetensors(scratch_ / "grads");
  expect_near_tensors(made.at("logits"), expected.at("logits"), "logits");
  EXPECT_NEAR(made.at("loss").item<double>(), loss(), 2e-5);
  for (const auto& [name, tensor] : expected)
    if (name != "logits") expect_near_tensors(gradients.at(name), tensor, name);
}

TEST_P(Heads, ForwardWithoutLabelsHasTheLogitsAlone) {
  TensorDict batch = read_safetensors(folder() + "/batch.safetensors");
  batch.take("labels");
  write_safetensors(scratch_ / "batch", batch);
  const std::string command = fmt::format("{} forward --model {} --batch {} --output {}", gantry_program(), folder(),
                                          scratch_ / "batch", scratch_ / "out");
  const Outcome run = run_program(command + " --set parallel.tensor=2");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const TensorDict made = read_safetensors(scratch_ / "out");
  expect_near_tensors(made.at("logits"), read_safetensors(folder() + "/results.safetensors").at("logits"), "logits");
  EXPECT_FALSE(made.contains("loss"));
  const Outcome refused = run_program(command + " --grads " + (scratch_ / "grads"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("batch has no labels; add labels, or leave out --grads"));
}

TEST(HeadOutputs, ThatAreNotFiniteAreAWarning) {
  const ScratchFolder scratch;
  const std::string folder = kHeads + "vit_one";
  TensorDict batch = read_safetensors(folder + "/batch.safetensors");
  const std::string command = fmt::format("{} forward --model {} --batch {} --output {}", gantry_program(), folder,
                                          scratch / "batch", scratch / "out");
  write_safetensors(scratch / "batch", batch);
  EXPECT_EQ(run_program(command).err, "");
  batch.at("pixel_values")[0].fill_(std::numeric_limits<double>::quiet_NaN());
  write_safetensors(scratch / "batch", batch);
  const Outcome run = run_program(command);
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("warning: these outputs are not finite: logits"));
}

TEST_P(Heads, TrainingAndEvaluationHaveTheLossOfTransformers) {
  const std::vector<std::string> layouts = {"", "--set parallel.data=2",
                                            "--set parallel.tensor=2 --set schedule.microbatches=2"};
  for (const std::string& layout : turn_of(index(), layouts.size(), layouts)) {
    const auto lines = train(layout);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_NEAR(lines[0]["loss"], loss(), 2e-5) << layout;
    EXPECT_NEAR(lines[1]["eval_loss"], loss(), 2e-5) << layout;
    const bool is_number = lines[1].contains("pearson");
    const std::string name = GetParam();
    EXPECT_EQ(is_number, name.find("_one") != std::string::npos || name.find("regression") != std::string::npos);
    EXPECT_EQ(lines[1].contains("accuracy"), !is_number);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Heads, ::testing::ValuesIn(kKinds), [](const auto& name) { return name.param; });

TEST(HeadFaults, SpeakOfLabelsAndClasses) {
  const ScratchFolder scratch;
  const auto fault = [&](const std::string& model, const TensorDict& batch, const std::string& sets = "") {
    write_safetensors(scratch / "batch", batch);
    const Outcome run = run_program(fmt::format("{} forward --model {}{} --batch {} --output {} {}", gantry_program(),
                                                kHeads, model, scratch / "batch", scratch / "out", sets));
    EXPECT_NE(run.exit_code, 0);
    return run.err;
  };
  const torch::Tensor ids = torch::full({2, 6}, 5, torch::kInt64);
  EXPECT_THAT(fault("bert_single", {{"input_ids", ids}, {"labels", torch::tensor({1, 3})}}),
              HasSubstr("labels: label 3 at index 1 is not one of the model's 3 classes; expected 0 to 2, or -100 to "
                        "ignore it; correct the labels, or set model.config.num_labels"));
  EXPECT_THAT(
      fault("roberta_regression", {{"input_ids", ids}, {"labels", torch::tensor({0.5, 1.0})}}),
      HasSubstr("'labels': the labels are float32 [2], and the logits float32 [2, 3]; expected a number for each "
                "logit"));
  EXPECT_THAT(fault("bert_single", {{"input_ids", ids}, {"labels", torch::tensor({1, 0})}},
                    "--set model.config.problem_type=ranking"),
              HasSubstr("one of single_label_classification, regression, multi_label_classification"));
}

}  // namespace
}  // namespace gantry::testing
