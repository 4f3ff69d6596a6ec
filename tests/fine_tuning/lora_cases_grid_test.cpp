// PEFT's reference cases in every layout against one rank, in float64: their adapters have values, so the first update
// sees the gradients of both factors, and the second one what the first has made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

// A case, and model.quantize.
struct LoraCase {
  std::string name, quantize = {};
};

class LoraCasesGrid : public ::testing::TestWithParam<LoraCase> {
 protected:
  std::string folder() const { return GANTRY_SOURCE_DIR "/tests/golden/lora/" + GetParam().name; }
};
INSTANTIATE_TEST_SUITE_P(Cases, LoraCasesGrid,
                         ::testing::Values(LoraCase{"qv"}, LoraCase{"all"}, LoraCase{"dora"}, LoraCase{"qlora_nf4"},
                                           LoraCase{"qlora_nf4_double"}, LoraCase{"qlora_nf4", "nf4"},
                                           LoraCase{"qlora_nf4_double", "nf4"}, LoraCase{"all", "fp4"},
                                           LoraCase{"dora", "int8"}),
                         [](const auto& info) {
                           return info.param.name + (info.param.quantize.empty() ? "" : "_in_" + info.param.quantize);
                         });

// Four samples; their labels belong to the token before. The second update's tokens are others.
TensorDict golden_batch(const std::string& folder, int step) {
  const TensorDict read = read_safetensors(folder + "/inputs.safetensors");
  const torch::Tensor given = read.at("input_ids").to(torch::kInt64),
                      tokens = (given + 17 * step) % (given.max().item<std::int64_t>() + 1),
                      labels = torch::full_like(tokens, -100);
  labels.narrow(1, 0, tokens.size(1) - 1).copy_(tokens.narrow(1, 1, tokens.size(1) - 1));
  labels[1].slice(0, 9).fill_(-100);  // samples with unequal counts
  return {{"input_ids", tokens}, {"labels", labels}};
}

LoraRun run_golden(const std::string& folder, const LoraLayout& how, const std::string& quantize = {}) {
  Config config = layout_config(how.layout);
  config.model.path = folder;
  config.model.quantize = quantize;
  config.lora.path = folder + "/adapter";
  train_in_layout(config, how);
  config = resolve_model(std::move(config));
  return run_lora(
      config, 2, [&](Rig& rig) { load_weights(config, rig.boosted, rig.plugin->mesh()); }, {}, 0,
      [&](int step) { return golden_batch(folder, step); });
}

TEST_P(LoraCasesGrid, TwoUpdatesAreOneRanks) {
  const LoraRun one = run_golden(folder(), {}, GetParam().quantize);
  EXPECT_NE(one.losses[0], one.losses[1]);
  const std::vector<LoraLayout> few = {
      {.layout = {.tensor = 3}, .sequence_parallel = true},
      {.layout = {.pipeline = 2, .tensor = 2, .context = 2}},
      {.layout = {.data = 2, .context = 2}, .zero = 3},
      {.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 3}};
  for (const auto& how : is_long_form() ? all_lora_layouts() : few) {
    if (GetParam().name == "qlora_nf4_double" && how.layout.pipeline > 1) continue;  // it has one layer
    expect_same_run(one, run_golden(folder(), how, GetParam().quantize), describe(how));
    if (HasFailure()) return;
  }
}

// Forms of a full model have no place for codes.
TEST(QuantizedBase, IsNotSavedAsAFullModel) {
  Config config = layout_config({});
  config.model.path = GANTRY_SOURCE_DIR "/tests/golden/lora/qlora_nf4";
  config.model.quantize = "nf4";
  config = resolve_model(std::move(config));
  const ScratchFolder scratch;
  const std::string said = on_layout<std::string>(config, [&](World& world) {
    Rig rig(world, config, cross_entropy(), /*optimize=*/false);
    load_weights(config, rig.boosted, rig.plugin->mesh());
    const auto& mesh = rig.plugin->mesh();
    return thrown_by([&] { save_checkpoint({.directory = scratch.path()}, rig.plugin->state(rig.boosted), mesh); });
  });
  EXPECT_THAT(said, ::testing::HasSubstr("in 4 or 8 bits (model.quantize), which this form of a model cannot hold"));
}

// The weights of the files, decoded once or at each use.
TEST(QuantizedBase, CodesOfTheFilesGiveTheRunOfDecodedWeights) {
  for (const char* name : {"qlora_nf4", "qlora_nf4_double"}) {
    const std::string folder = GANTRY_SOURCE_DIR "/tests/golden/lora/" + std::string(name);
    LoraRun decoded = run_golden(folder, {});
    const LoraRun coded = run_golden(folder, {}, "nf4");
    TensorDict kept;  // a quantised layer has no weight to compare
    for (const auto& [parameter, values] : coded.weights) kept.set(parameter, decoded.weights.at(parameter));
    EXPECT_LT(kept.size(), decoded.weights.size());
    decoded.weights = kept;
    expect_same_run(decoded, coded, name);
  }
}

}  // namespace
}  // namespace gantry::testing
