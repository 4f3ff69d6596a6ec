// Models that score a pair of texts: tokens of pairs, losses and logits are those of transformers.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;

const std::string kPairs = GANTRY_SOURCE_DIR "/tests/golden/cross_encoder/";

double loss_of_pairs(const std::string& kind) { return json::parse(read_file(kPairs + "losses.json"))[kind]; }

// One step on the lines of pairs, whose update is too small to matter: the losses of the step and the evaluation.
std::vector<double> trained_losses(const std::string& sets) {
  const ScratchFolder scratch;
  const std::string config = scratch.write(
      "run.yaml", fmt::format("model: {{path: {0}}}\nprecision: float64\n"
                              "data: {{format: jsonl, path: {0}/lines.jsonl, sequence_length: 14, batch_size: 4, "
                              "bad_lines: cut, tokenizer: {1}/tests/golden/word_piece/vocab.txt}}\n"
                              "evaluation: {{path: {0}/lines.jsonl}}\noptimizer: {{lr: 1.0e-12, weight_decay: 0}}\n"
                              "train: {{steps: 1}}\ncomm: {{threads_per_rank: 1}}\noutput: {2}\n",
                              kPairs, GANTRY_SOURCE_DIR, scratch / "run"));
  const Outcome run = run_program(gantry_program() + " train " + config + " " + sets, 60);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  std::vector<double> losses;
  std::istringstream file(read_file(scratch / "run/metrics.jsonl"));
  for (std::string line; std::getline(file, line);) {
    const json entry = json::parse(line);
    losses.push_back(entry.contains("loss") ? entry["loss"] : entry["eval_loss"]);
  }
  return losses;
}

TEST(CrossEncoders, LearnPairsOfTextsWithTheLossOfTransformers) {
  for (const std::string kind : {"regression", "multi_label_classification"}) {
    // One label without a problem_type is a regression.
    const auto losses = trained_losses(kind == "regression" ? ""
                                                            : "--set parallel.data=2 --set parallel.tensor=2 "
                                                              "--set model.config.problem_type=" +
                                                                  kind);
    ASSERT_EQ(losses.size(), 2u) << kind;
    for (const double loss : losses) EXPECT_NEAR(loss, loss_of_pairs(kind), 1e-6) << kind;
  }
}

TEST(CrossEncoders, ScorePairsOfTexts) {
  const ScratchFolder scratch;
  const Outcome run =
      run_program(fmt::format("{} forward --model {} --batch {}/batch.safetensors --output {} "
                              "--set precision=float64 --set parallel.context=2",
                              gantry_program(), kPairs, kPairs, scratch / "out"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const TensorDict made = read_safetensors(scratch / "out");
  const torch::Tensor expected = read_safetensors(kPairs + "expected.safetensors").at("logits");
  ASSERT_EQ(made.at("logits").sizes(), expected.sizes());
  EXPECT_LT((made.at("logits") - expected).abs().max().item<double>(), 1e-5);
  EXPECT_NEAR(made.at("loss").item<double>(), loss_of_pairs("regression"), 1e-6);
}

}  // namespace
}  // namespace gantry::testing
