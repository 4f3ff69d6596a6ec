// Hugging Face's own numbers, through `gantry forward` and `gantry train`, in every layout.
#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/checkpoint/safetensors.h"
#include "program.h"

namespace gantry::testing {
namespace {

const std::string kGolden = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/gpt2";

double largest(const torch::Tensor& tensor) { return tensor.abs().max().item<double>(); }

double largest_of(const TensorDict& tensors) {
  double all = 0;
  for (const auto& [name, tensor] : tensors) all = std::max(all, largest(tensor));
  return all;
}

std::string layout_flags(int tensor, int pipeline) {
  return " --set parallel.tensor=" + std::to_string(tensor) + " --set parallel.pipeline=" + std::to_string(pipeline);
}

void check_forward(int tensor, int pipeline) {
  const ScratchFolder scratch;
  const Outcome run = run_program(gantry_program() + " forward --model " + kGolden + " --batch " + kGolden +
                                  "/batch.safetensors --output " + (scratch / "out.safetensors") + " --grads " +
                                  (scratch / "grads.safetensors") + layout_flags(tensor, pipeline));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const TensorDict expected = read_safetensors(kGolden + "/forward.safetensors"),
                   got = read_safetensors(scratch / "out.safetensors");
  EXPECT_LE(largest(got.at("logits") - expected.at("logits")), 2e-5);
  EXPECT_NEAR(got.at("loss").item<double>(), expected.at("loss").item<double>(), 1e-5);
  const TensorDict gradients = read_safetensors(kGolden + "/grads.safetensors"),
                   made = read_safetensors(scratch / "grads.safetensors");
  ASSERT_EQ(made.size(), gradients.size());
  const double floor = largest_of(gradients) / 1000;
  for (const auto& [name, gradient] : gradients)
    EXPECT_LE(largest(made.at(name) - gradient), 1e-4 * std::max(largest(gradient), floor))
        << name << " tp " << tensor << " pp " << pipeline;
}

TEST(GoldenForward, Gpt2AtEveryTensorSize) {
  for (int tensor = 1; tensor <= 4; ++tensor) check_forward(tensor, 1);
}
TEST(GoldenForward, Gpt2AtEveryPipelineSize) {
  for (int pipeline = 2; pipeline <= 4; ++pipeline) check_forward(1, pipeline);
}
TEST(GoldenForward, Gpt2AtBoth) {
  for (int tensor = 2; tensor <= 4; ++tensor)
    for (int pipeline = 2; pipeline <= 4; ++pipeline) check_forward(tensor, pipeline);
}

std::string training_config(const ScratchFolder& scratch, const nlohmann::json& golden) {
  const auto& settings = golden["optimizer"];
  std::ostringstream text;
  text << "model: {policy: gpt2, path: \"" << kGolden << "\"}\n"
       << "data: {format: tokens, path: \"" << kGolden << "/tokens.bin\", sequence_length: " << golden["sequence"]
       << ", batch_size: " << golden["batch"] << ", shuffle: false}\n"
       << "optimizer: {name: adamw, lr: " << settings["lr"] << ", betas: " << settings["betas"]
       << ", eps: " << settings["eps"] << ", weight_decay: " << settings["weight_decay"]
       << ", clip_grad_norm: " << settings["clip_grad_norm"] << "}\n"
       << "train: {steps: " << golden["steps"] << "}\n"
       << "checkpoint: {path: \"" << (scratch / "checkpoints") << "\"}\noutput: \"" << (scratch / "run") << "\"\n";
  return scratch.write("train.yaml", text.str());
}

void check_training(int tensor, int pipeline) {
  const ScratchFolder scratch;
  const auto golden = nlohmann::json::parse(read_file(kGolden + "/trajectory.json"));
  const std::string config = training_config(scratch, golden);
  const Outcome run = run_program(gantry_program() + " train " + config + layout_flags(tensor, pipeline));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::istringstream lines(read_file(scratch / "run/metrics.jsonl"));
  std::size_t step = 0;
  for (std::string line; std::getline(lines, line); ++step) {
    const auto got = nlohmann::json::parse(line);
    const auto& expected = golden["history"][step];
    EXPECT_EQ(got["step"], expected["step"]);
    EXPECT_NEAR(got["loss"].get<double>(), expected["loss"].get<double>(), 1e-4 * expected["loss"].get<double>());
    EXPECT_NEAR(got["grad_norm"].get<double>(), expected["grad_norm"].get<double>(),
                1e-3 * expected["grad_norm"].get<double>());
  }
  EXPECT_EQ(step, golden["history"].size());

  const Outcome exported =
      run_program(gantry_program() + " checkpoint export " + (scratch / "checkpoints") + " " + (scratch / "export"));
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const TensorDict expected = read_safetensors(kGolden + "/final.safetensors"),
                   got = read_safetensors(scratch / "export/model.safetensors");
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, whole] : expected) {
    torch::Tensor weight = whole, made = got.at(name);
    if (name.ends_with("c_attn.bias")) {  // the key's exact gradient is zero, so AdamW follows rounding there
      const auto third = weight.size(0) / 3;
      weight = torch::cat({weight.narrow(0, 0, third), weight.narrow(0, 2 * third, third)});
      made = torch::cat({made.narrow(0, 0, third), made.narrow(0, 2 * third, third)});
    }
    EXPECT_LE(largest(made - weight), 1e-3 * largest(weight)) << name << " tp " << tensor << " pp " << pipeline;
  }
}

TEST(GoldenTraining, Gpt2AtEveryTensorSize) {
  for (int tensor = 1; tensor <= 4; ++tensor) check_training(tensor, 1);
}
TEST(GoldenTraining, Gpt2AtEveryPipelineSize) {
  for (int pipeline = 2; pipeline <= 4; ++pipeline) check_training(1, pipeline);
}
TEST(GoldenTraining, Gpt2AtBoth) {
  for (int tensor = 2; tensor <= 4; ++tensor)
    for (int pipeline = 2; pipeline <= 4; ++pipeline) check_training(tensor, pipeline);
}

}  // namespace
}  // namespace gantry::testing
