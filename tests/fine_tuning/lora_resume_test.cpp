// Checkpoints of adapters, also of embeddings, routers and stacked experts. A resumed run is bitwise
// identical, and equal within tolerances in another layout. Such adapters also train in bfloat16.
#include <gtest/gtest.h>

#include "gantry/checkpoint/checkpoint.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "program.h"

namespace gantry::testing {
namespace {

const std::vector<std::string> kMixtralParts = {"q_proj", "embed_tokens", "gate", "experts.gate_up_proj",
                                                "experts.down_proj"};
const std::vector<std::string> kGpt2Parts = {"wte", "wpe", "c_attn"};

Config mixtral_parts(const LoraLayout& how) { return parts_config("mixtral", kMixtralOfFive, kMixtralParts, how); }
Config gpt2_parts(const LoraLayout& how) { return parts_config("gpt2", kTiedGpt2, kGpt2Parts, how); }

// Compares four steps with two steps that resume from a checkpoint after two. `other`, a layout in float64,
// resumes from the checkpoint too.
void expect_to_go_on(const Config& config, std::size_t adapters, const Config* other = nullptr) {
  const ScratchFolder scratch;
  const LoraRun full = run_lora(config, 4);
  run_lora(config, 2, {}, [&](Rig& rig) {
    save_checkpoint({.directory = scratch.path(), .step = 2}, rig.plugin->state(rig.boosted), rig.plugin->mesh());
  });
  const auto stored = read_checkpoint_tensors(scratch / "step-000002", "model");
  EXPECT_EQ(stored.size(), adapters);
  for (const auto& [name, tensor] : stored) EXPECT_TRUE(is_adapter(name)) << name;
  const auto resume = [&](Rig& rig) {
    load_checkpoint(scratch / "step-000002", rig.plugin->state(rig.boosted), rig.plugin->mesh());
  };
  const LoraRun rest = run_lora(config, 2, resume, {}, 2);
  ASSERT_EQ(rest.losses.size(), 2u);
  EXPECT_EQ(rest.losses[0], full.losses[2]);
  EXPECT_EQ(rest.losses[1], full.losses[3]);
  ASSERT_EQ(rest.weights.size(), full.weights.size());
  for (const auto& [name, values] : full.weights) EXPECT_TRUE(torch::equal(values, rest.weights.at(name))) << name;
  if (!other) return;
  const LoraRun elsewhere = run_lora(*other, 2, resume, {}, 2);
  EXPECT_NEAR(elsewhere.losses[0], full.losses[2], 1e-10);
  EXPECT_NEAR(elsewhere.losses[1], full.losses[3], 1e-10);
  expect_close(full.weights, elsewhere.weights);
}

// A and B of q_proj, router and two stacks in each of two layers, and of the embedding.
constexpr std::size_t kMixtralAdapters = 2 * (2 * 4 + 1);
// A and B of c_attn in each of two layers, and of both embeddings.
constexpr std::size_t kGpt2Adapters = 2 * (2 + 2);

// A and B of seven linear modules in each of two layers.
constexpr std::size_t kLinearAdapters = 2 * 2 * 7;

TEST(LoraCheckpoints, GoOnToTheSameBits) {
  const Config other = lora_config({.layout = {.pipeline = 2}}, 0.2);
  expect_to_go_on(lora_config({.layout = {.data = 2, .tensor = 2}, .zero = 1}, 0.2), kLinearAdapters, &other);
}

TEST(LoraCheckpoints, OfRowsGoOnToTheSameBits) {
  const Config other = lora_config({.layout = {.pipeline = 2}}, 0.2);
  expect_to_go_on(lora_config({.layout = {.data = 2, .tensor = 2}, .zero = 3}, 0.2), kLinearAdapters, &other);
}

TEST(LoraResume, ExpertsOverRanksGoOnToTheSameBits) {
  const Config other = mixtral_parts({.layout = {.pipeline = 2, .tensor = 2}});
  expect_to_go_on(mixtral_parts({.layout = {.data = 2, .expert = 2}, .zero = 1}), kMixtralAdapters, &other);
}

TEST(LoraResume, ExpertsByWidthGoOnToTheSameBits) {
  const Config other = mixtral_parts({.layout = {.tensor = 2, .expert = 2}, .sequence_parallel = true});
  expect_to_go_on(mixtral_parts({.layout = {.data = 2, .tensor = 2}, .zero = 3}), kMixtralAdapters, &other);
}

TEST(LoraResume, TiedTablesGoOnToTheSameBits) {
  const Config other = gpt2_parts({.layout = {.data = 2, .context = 2}, .zero = 2});
  expect_to_go_on(gpt2_parts({.layout = {.pipeline = 2, .tensor = 3}, .sequence_parallel = true}), kGpt2Adapters,
                  &other);
}

// Master weights are float32, and the checkpoint stores them.
TEST(LoraResume, InBfloat16Too) {
  for (Config config : {mixtral_parts({.layout = {.data = 2, .expert = 2}, .zero = 1}),
                        gpt2_parts({.layout = {.data = 2, .tensor = 2}, .zero = 3})}) {
    config.precision = "bfloat16";
    expect_to_go_on(config, config.model.policy == "gpt2" ? kGpt2Adapters : kMixtralAdapters);
  }
}

TEST(LoraInBfloat16, LossesFollowThoseOfFloat64) {
  for (const Config& exact : {mixtral_parts({}), gpt2_parts({})}) {
    const LoraRun expected = run_lora(exact, 6);
    EXPECT_GT(std::abs(expected.losses[5] - expected.losses[0]), 0.1);
    for (const LoraLayout& how : {LoraLayout{}, LoraLayout{.layout = {.tensor = 2}, .sequence_parallel = true},
                                  LoraLayout{.layout = {.data = 2}, .zero = 3}}) {
      Config config = exact.model.policy == "gpt2" ? gpt2_parts(how) : mixtral_parts(how);
      config.precision = "bfloat16";
      const LoraRun run = run_lora(config, 6);
      for (std::size_t step = 0; step < 6; ++step)
        EXPECT_NEAR(run.losses[step], expected.losses[step], 0.03) << config.model.policy << " " << describe(how);
    }
  }
}

}  // namespace
}  // namespace gantry::testing
