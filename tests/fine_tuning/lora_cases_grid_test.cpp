// PEFT's reference cases in every layout compared with one rank, in float64. Their adapters have values, so
// the first update has gradients of both factors, and the second one depends on the first.
#include <filesystem>
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

// A case, model.quantize and model.quantize_double.
struct LoraCase {
  std::string name, quantize = {};
  bool is_double = false;
};

class LoraCasesGrid : public ::testing::TestWithParam<LoraCase> {
 protected:
  std::string folder() const { return GANTRY_SOURCE_DIR "/tests/golden/lora/" + GetParam().name; }
};
INSTANTIATE_TEST_SUITE_P(Cases, LoraCasesGrid,
                         ::testing::Values(LoraCase{"qv"}, LoraCase{"all"}, LoraCase{"dora"}, LoraCase{"qlora_nf4"},
                                           LoraCase{"qlora_nf4_double"}, LoraCase{"qlora_nf4", "nf4"},
                                           LoraCase{"qlora_nf4_double", "nf4"}, LoraCase{"all", "fp4"},
                                           LoraCase{"dora", "int8"}, LoraCase{"qlora_nf4_double", "nf4", true},
                                           LoraCase{"dora", "nf4", true}, LoraCase{"all", "fp4", true},
                                           LoraCase{"dora", "fp8"}),
                         [](const auto& info) {
                           return info.param.name + (info.param.quantize.empty() ? "" : "_in_" + info.param.quantize) +
                                  (info.param.is_double ? "_twice" : "");
                         });

// Four samples, with labels shifted by one token. The second update has other tokens.
TensorDict golden_batch(const std::string& folder, int step) {
  const TensorDict read = read_safetensors(folder + "/inputs.safetensors");
  const torch::Tensor given = read.at("input_ids").to(torch::kInt64),
                      tokens = (given + 17 * step) % (given.max().item<std::int64_t>() + 1),
                      labels = torch::full_like(tokens, -100);
  labels.narrow(1, 0, tokens.size(1) - 1).copy_(tokens.narrow(1, 1, tokens.size(1) - 1));
  labels[1].slice(0, 9).fill_(-100);  // samples with unequal counts
  return {{"input_ids", tokens}, {"labels", labels}};
}

LoraRun run_golden(const std::string& folder, const LoraLayout& how, const std::string& quantize = {},
                   bool is_double = false) {
  Config config = layout_config(how.layout);
  config.model.path = folder;
  config.model.quantize = quantize;
  config.model.quantize_double = is_double;
  config.lora.path = folder + "/adapter";
  train_in_layout(config, how);
  config = resolve_model(std::move(config));
  return run_lora(
      config, 2, [&](Rig& rig) { load_weights(config, rig.boosted, rig.plugin->mesh()); }, {}, 0,
      [&](int step) { return golden_batch(folder, step); });
}

TEST_P(LoraCasesGrid, TwoUpdatesAreOneRanks) {
  const LoraRun one = run_golden(folder(), {}, GetParam().quantize, GetParam().is_double);
  EXPECT_NE(one.losses[0], one.losses[1]);
  const std::vector<LoraLayout> few = {
      {.layout = {.tensor = 3}, .sequence_parallel = true},
      {.layout = {.pipeline = 2, .tensor = 2, .context = 2}},
      {.layout = {.data = 2, .context = 2}, .zero = 3},
      {.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 3}};
  for (const auto& how : is_long_form() ? all_lora_layouts() : few) {
    if (GetParam().name == "qlora_nf4_double" && how.layout.pipeline > 1) continue;  // it has one layer
    expect_same_run(one, run_golden(folder(), how, GetParam().quantize, GetParam().is_double), describe(how));
    if (HasFailure()) return;
  }
}

// The formats of a full model cannot store codes.
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

// Files whose blocks are smaller than the blocks of the records.
TEST(QuantizedBase, SmallerBlocksAreRefused) {
  const std::string golden = GANTRY_SOURCE_DIR "/tests/golden/lora/qlora_nf4_double",
                    weight = "model.layers.0.mlp.down_proj.weight", state = weight + ".quant_state.bitsandbytes__nf4";
  TensorDict tensors;
  for (const auto& [name, tensor] : read_safetensors(golden + "/model.safetensors")) tensors.set(name, tensor);
  const auto bytes_of = [](const std::string& text) {
    return torch::tensor(std::vector<std::uint8_t>(text.begin(), text.end()), torch::kUInt8);
  };
  const auto refusal = [&](bool is_double) {
    const ScratchFolder scratch;
    std::filesystem::copy(golden, scratch / "base", std::filesystem::copy_options::recursive);
    write_safetensors(scratch / "base/model.safetensors", tensors);
    Config config = layout_config({});
    config.model.path = scratch / "base";
    config.model.quantize = "nf4";
    config.model.quantize_double = is_double;
    config = resolve_model(std::move(config));
    return on_layout<std::string>(config, [&](World& world) {
      Rig rig(world, config, cross_entropy(), /*optimize=*/false);
      return thrown_by([&] { load_weights(config, rig.boosted, rig.plugin->mesh()); });
    });
  };
  EXPECT_EQ(refusal(true), "no error");
  tensors.set(state, bytes_of(R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [36, 460],
                                  "nested_blocksize": 4, "nested_dtype": "float32", "nested_offset": 0.5})"));
  tensors.set(weight + ".nested_absmax", torch::arange(1, 66, torch::kFloat32) / 100);
  EXPECT_EQ(refusal(false), "no error");
  EXPECT_THAT(
      refusal(true),
      ::testing::HasSubstr("down_proj.weight: the scales in the files belong to other blocks than those that this "
                           "rank needs; expected blocks of a multiple of 64 inputs and of 256 scales; remove "
                           "model.quantize_double: the scales are then decoded"));
  tensors.set(state, bytes_of(R"({"quant_type": "nf4", "blocksize": 2, "dtype": "bfloat16", "shape": [36, 460]})"));
  tensors.set(weight + ".absmax", torch::arange(1, 8281, torch::kFloat32) / 1000);
  EXPECT_THAT(
      refusal(false),
      ::testing::HasSubstr("down_proj.weight: the scales in the files belong to other blocks than those that this "
                           "rank needs; expected blocks of a multiple of 64 inputs; remove model.quantize: the "
                           "weights are then decoded"));
}

// The weights of the files, decoded once or at each use.
TEST(QuantizedBase, CodesOfTheFilesGiveTheRunOfDecodedWeights) {
  for (const auto& [name, is_double] :
       {std::pair("qlora_nf4", false), std::pair("qlora_nf4_double", false), std::pair("qlora_nf4_double", true)}) {
    const std::string folder = GANTRY_SOURCE_DIR "/tests/golden/lora/" + std::string(name);
    LoraRun decoded = run_golden(folder, {});
    const LoraRun coded = run_golden(folder, {}, "nf4", is_double);
    TensorDict kept;  // a quantised layer has no weight to compare
    for (const auto& [parameter, values] : coded.weights) kept.set(parameter, decoded.weights.at(parameter));
    EXPECT_LT(kept.size(), decoded.weights.size());
    decoded.weights = kept;
    expect_same_run(decoded, coded, name);
  }
}

}  // namespace
}  // namespace gantry::testing
