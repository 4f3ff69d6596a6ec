// MXFP4: expert weights in blocks of four-bit numbers, as in the published gpt-oss.
#include "gantry/checkpoint/mxfp4.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

torch::Tensor mxfp4_values(const torch::Tensor& blocks, const torch::Tensor& scales) {
  return values_of(WeightCode::kMxfp4, mxfp4_codes(blocks, scales));
}

constexpr int kExperts = 3, kHidden = 64, kExpertWidth = 32;

TEST(Mxfp4, EveryNumberAndScale) {
  torch::Tensor blocks = torch::empty({2, 16}, torch::kUInt8);
  for (int i = 0; i < 16; ++i) {
    blocks[0][i] = i | (15 - i) << 4;
    blocks[1][i] = i << 4;
  }
  const torch::Tensor scales = torch::tensor({128, 120}, torch::kUInt8).view({2, 1});
  const torch::Tensor values = mxfp4_values(blocks.view({2, 1, 16}), scales);
  ASSERT_EQ(values.sizes(), (std::vector<std::int64_t>{2, 32}));
  const std::vector<float> numbers = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0., -0.5, -1, -1.5, -2, -3, -4, -6};
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[0][2 * i].item<float>(), 2 * numbers[i]) << i;
    EXPECT_EQ(values[0][2 * i + 1].item<float>(), 2 * numbers[15 - i]) << i;
    EXPECT_EQ(values[1][2 * i].item<float>(), 0) << i;
    EXPECT_EQ(values[1][2 * i + 1].item<float>(), numbers[i] / 128) << i;
  }
}

json small_gpt_oss() {
  return {{"model_type", "gpt_oss"},
          {"architectures", {"GptOssForCausalLM"}},
          {"vocab_size", 61},
          {"hidden_size", kHidden},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 6},
          {"num_local_experts", kExperts},
          {"num_experts_per_tok", 2},
          {"sliding_window", 5},
          {"intermediate_size", kExpertWidth},
          {"max_position_embeddings", 64}};
}

// The same model with MXFP4 blocks, and with the values of these blocks.
struct TwoForms {
  TensorDict packed, plain;
};

TwoForms two_forms(const json& keys) {
  torch::manual_seed(4);
  TwoForms forms;
  const auto model = models::families().at("gpt_oss").build(keys);
  TensorDict by_name;
  for (const auto& item : model->named_parameters()) by_name.set(item.key(), torch::randn_like(item.value()) * 0.2);
  for (const auto& name : models::families().at("gpt_oss").tensor_names(keys)) {
    const torch::Tensor& full = by_name.at(name.name);
    if (full.dim() != 3) {
      forms.packed.set(name.hugging_face, full);
      forms.plain.set(name.hugging_face, full);
      continue;
    }
    const auto in_row = full.size(1) / 32;
    const torch::Tensor blocks = torch::randint(0, 256, {full.size(0), full.size(2), in_row, 16}, torch::kUInt8),
                        scales = torch::randint(122, 126, {full.size(0), full.size(2), in_row}, torch::kUInt8);
    forms.packed.set(name.hugging_face + "_blocks", blocks);
    forms.packed.set(name.hugging_face + "_scales", scales);
    forms.plain.set(name.hugging_face, mxfp4_values(blocks, scales).transpose(1, 2).contiguous());
  }
  return forms;
}

std::string written(const ScratchFolder& scratch, const std::string& name, const TensorDict& tensors,
                    const json& keys) {
  std::filesystem::create_directory(scratch / name);
  scratch.write(name + "/config.json", keys.dump());
  write_safetensors(scratch / (name + "/model.safetensors"), tensors);
  const torch::Tensor ids = torch::arange(14).view({2, 7}) * 4;
  write_safetensors(scratch / (name + "/inputs.safetensors"), {{"input_ids", ids}, {"labels", ids}});
  return scratch / name;
}

TEST(Mxfp4, ModelsHaveTheNumbersOfTheirBlocks) {
  const ScratchFolder scratch;
  json keys = small_gpt_oss();
  const TwoForms forms = two_forms(keys);
  const std::string plain = written(scratch, "plain", forms.plain, keys);
  keys["quantization_config"] = {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"lm_head"}}};
  const std::string packed = written(scratch, "packed", forms.packed, keys);
  for (const Layout& layout : {Layout{}, Layout{.tensor = 2}, Layout{.data = 2, .expert = 2}}) {
    const torch::Tensor expected = run_family(plain, layout, false, "float64").outputs.at("logits"),
                        logits = run_family(packed, layout, false, "float64").outputs.at("logits");
    // Two runs of a matrix multiplication may round differently.
    EXPECT_TRUE(torch::allclose(logits, expected, 1e-12, 1e-12)) << (logits - expected).abs().max().item<double>();
  }
}

TEST(Mxfp4, RefusesOtherShapesAndKinds) {
  const auto& family = models::families().at("gpt_oss");
  const auto refusal = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  json keys = small_gpt_oss();
  TwoForms forms = two_forms(keys);
  const std::string weight = "layers.0.mlp.experts.down_proj", blocks = "model." + weight + "_blocks";
  const std::vector<HeldTensor> held = {{Placement{.name = weight, .global_shape = {kExperts, kExpertWidth, kHidden}},
                                         torch::empty({kExperts, kExpertWidth, kHidden})}};
  const auto load = [&](const std::string& name) {
    const ScratchFolder scratch;
    const std::string folder = written(scratch, name, forms.packed, keys);
    load_hugging_face(folder, family, keys, held, {});
  };
  EXPECT_EQ(refusal([&] { load("sound"); }), "");
  EXPECT_TRUE(torch::equal(held[0].tensor, forms.plain.at("model." + weight)));
  const torch::Tensor full = forms.packed.at(blocks);
  forms.packed.set(blocks, full.narrow(1, 0, 5).contiguous());
  EXPECT_THAT(refusal([&] { load("shape"); }),
              HasSubstr(blocks + ": the tensor has the shape [3, 5, 1, 16]; expected [3, 64, 1"));
  forms.packed.set(blocks, full.to(torch::kInt8));
  EXPECT_THAT(refusal([&] { load("type"); }), HasSubstr(blocks + ": the tensor is int8; expected uint8"));
  keys["quantization_config"] = {{"quant_method", "fp8"}};
  EXPECT_THAT(refusal([&] { family.check(keys); }), HasSubstr("quantization_config"));
}

}  // namespace
}  // namespace gantry::testing
