// Bases in fp8 and MXFP4, as DeepSeek-V3 and gpt-oss are published, whose codes stay in memory (model.quantize).
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/mxfp4.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/slice.h"
#include "gantry/models/model_family.h"
#include "gantry/nn/experts.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/quantized_weight.h"
#include "gantry/tensors/slice_copy.h"
#include "lora_rig.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Inputs of one and of two blocks of 128, and widths that ranks do not share evenly.
json small_deepseek() {
  return {{"model_type", "deepseek_v3"},
          {"architectures", {"DeepseekV3ForCausalLM"}},
          {"vocab_size", 31},
          {"hidden_size", 160},
          {"intermediate_size", 130},
          {"moe_intermediate_size", 72},
          {"num_hidden_layers", 2},
          {"first_k_dense_replace", 1},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 4},
          {"n_routed_experts", 4},
          {"n_shared_experts", 1},
          {"num_experts_per_tok", 2},
          {"n_group", 2},
          {"topk_group", 2},
          {"q_lora_rank", 12},
          {"kv_lora_rank", 8},
          {"qk_nope_head_dim", 5},
          {"qk_rope_head_dim", 4},
          {"v_head_dim", 6},
          {"num_nextn_predict_layers", 0},
          {"max_position_embeddings", 64}};
}

json gpt_oss_of_four() {
  return {{"model_type", "gpt_oss"},
          {"architectures", {"GptOssForCausalLM"}},
          {"vocab_size", 31},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 6},
          {"num_local_experts", 4},
          {"num_experts_per_tok", 2},
          {"sliding_window", 5},
          {"max_position_embeddings", 64}};
}

// The tensors of a model in its files: as published, and decoded.
struct PublishedBase {
  TensorDict coded, decoded;
};

void add_fp8(PublishedBase& base, const std::string& name, const torch::Tensor& values) {
  const auto blocks = [&](int dim) { return (values.size(dim) + 127) / 128; };
  const torch::Tensor scales = torch::rand({blocks(0), blocks(1)}) * 1e-3 + 1e-3;
  const torch::Tensor wide = scales.repeat_interleave(128, 0)
                                 .narrow(0, 0, values.size(0))
                                 .repeat_interleave(128, 1)
                                 .narrow(1, 0, values.size(1));
  const torch::Tensor stored = (values / wide).clamp(-448, 448).to(torch::kFloat8_e4m3fn);
  base.coded.set(name, stored);
  base.coded.set(name + "_scale_inv", scales);
  base.decoded.set(name, stored.to(torch::kFloat32) * wide);
}

void add_mxfp4(PublishedBase& base, const std::string& name, const torch::Tensor& values) {
  const Shape shape = {values.size(0), values.size(2), values.size(1) / 32};
  const torch::Tensor blocks = torch::randint(0, 256, {shape[0], shape[1], shape[2], 16}, torch::kUInt8);
  const torch::Tensor scales = torch::randint(121, 125, shape, torch::kUInt8);
  base.coded.set(name + "_blocks", blocks);
  base.coded.set(name + "_scales", scales);
  base.decoded.set(name, values_of(WeightCode::kMxfp4, mxfp4_codes(blocks, scales)).transpose(1, 2).contiguous());
}

bool is_published_in_fp8(const std::string& name, const torch::Tensor& tensor) {
  return tensor.dim() == 2 && name.find("layers.") != std::string::npos && !name.ends_with("mlp.gate.weight");
}

PublishedBase published_base(const json& keys) {
  torch::manual_seed(4);
  const auto& family = models::families().at(models::family_of(keys));
  const auto model = family.build(keys);
  TensorDict values;
  for (const auto& item : model->named_parameters()) values.set(item.key(), torch::randn_like(item.value()) * 0.1);
  PublishedBase base;
  for (const auto& [name, stored] : to_hugging_face(family.tensor_names(keys), values)) {
    const torch::Tensor tensor = stored.contiguous();
    if (tensor.dim() == 3) {
      add_mxfp4(base, name, tensor);
    } else if (is_published_in_fp8(name, tensor) && models::family_of(keys) == "deepseek_v3") {
      add_fp8(base, name, tensor);
    } else {
      base.coded.set(name, tensor);
      base.decoded.set(name, tensor);
    }
  }
  return base;
}

// Two directories with one model each, and the key that keeps the codes of the first.
struct PublishedCase {
  std::string name, quantize;
  json keys, quantization;
  std::vector<std::string> targets;
};

PublishedCase deepseek_case() {
  return {"deepseek_v3",
          "fp8",
          small_deepseek(),
          {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}},
          {"q_a_proj", "kv_b_proj", "o_proj", "down_proj", "experts.gate_up_proj", "experts.down_proj"}};
}

PublishedCase gpt_oss_case() {
  return {"gpt_oss",
          "mxfp4",
          gpt_oss_of_four(),
          {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"lm_head"}}},
          {"q_proj", "o_proj", "experts.gate_up_proj", "experts.down_proj"}};
}

class PublishedCodes : public ::testing::TestWithParam<PublishedCase> {
 protected:
  void SetUp() override {
    const PublishedBase base = published_base(GetParam().keys);
    json keys = GetParam().keys;
    write("decoded", base.decoded, keys);
    keys["quantization_config"] = GetParam().quantization;
    write("coded", base.coded, keys);
  }
  void write(const std::string& name, const TensorDict& tensors, const json& keys) {
    std::filesystem::create_directory(scratch_ / name);
    scratch_.write(name + "/config.json", keys.dump());
    write_safetensors(scratch_ / (name + "/model.safetensors"), tensors);
  }
  Config config(const std::string& directory, const LoraLayout& how, const std::string& quantize = {}) const {
    Config config = layout_config(how.layout);
    config.model.path = scratch_ / directory;
    config.model.quantize = quantize;
    config.lora = {.r = 3, .alpha = 5, .target_modules = GetParam().targets};
    train_in_layout(config, how);
    return resolve_model(std::move(config));
  }

  const ScratchFolder scratch_;
};
INSTANTIATE_TEST_SUITE_P(Families, PublishedCodes, ::testing::Values(deepseek_case(), gpt_oss_case()),
                         [](const auto& info) { return info.param.name; });

std::vector<LoraLayout> layouts_of_codes() {
  return {{},
          {.layout = {.tensor = 3}, .sequence_parallel = true},
          {.layout = {.pipeline = 2, .tensor = 2}},
          {.layout = {.data = 2}, .zero = 3},
          {.layout = {.data = 2, .expert = 2}},
          {.layout = {.data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 3},
          {.layout = {.data = 2, .tensor = 2, .expert = 2}, .sequence_parallel = true, .zero = 3}};
}

using WeightsByName = std::map<std::string, torch::Tensor>;

// The decoded weights of a directory in full, by the names of their parameters.
WeightsByName decoded_weights(const Config& config) {
  const json keys = json::parse(read_file(config.model.path + "/config.json"));
  const auto& family = models::families().at(config.model.policy);
  const auto model = family.build(keys);
  const auto held = full_parameters(*model);
  load_hugging_face(config.model.path, family, keys, held, {});
  WeightsByName values;
  for (const HeldTensor& one : held) values[one.placement.name] = one.tensor.detach();
  return values;
}

std::map<std::string, RowEncoding> encodings_of(const torch::nn::Module& model) {
  std::map<std::string, RowEncoding> encodings;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const auto* layer = dynamic_cast<const nn::LinearImpl*>(item.value().get());
    if (layer && layer->encoding()) encodings[item.key() + ".weight"] = *layer->encoding();
    if (const auto* experts = dynamic_cast<const nn::ExpertsImpl*>(item.value().get()))
      for (const std::string& stack : experts->stacks())
        if (const auto encoding = experts->encoding(stack)) encodings[item.key() + "." + stack] = *encoding;
  }
  return encodings;
}

// Returns the names of a rank's records whose values differ from the decoded weights, and checks their size.
std::string different_records(Rig& rig, const WeightsByName& decoded) {
  const auto encodings = encodings_of(rig.boosted.model->module());
  std::string different;
  std::size_t found = 0;
  for (const HeldTensor& held : rig.boosted.model->stage_module().parameters) {
    if (!has_records(held.tensor)) continue;
    ++found;
    const RowEncoding& encoding = encodings.at(held.placement.name);
    const torch::Tensor records = held.tensor.detach().reshape({-1, encoding.record_bytes()}).cpu();
    torch::Tensor full = decoded.at(held.placement.name);
    if (encoding.code == WeightCode::kMxfp4) full = full.transpose(1, 2).contiguous();
    const torch::Tensor expected = take_slice(full, held_slice(held.placement, rig.plugin->mesh().coordinates()));
    if (!torch::equal(unpack_records(encoding, records, torch::kFloat32), expected.reshape({-1, encoding.columns})))
      different += held.placement.name + " ";
  }
  return found == 0 ? "no records" : different;
}

TEST_P(PublishedCodes, RecordsHaveTheDecodedValuesInEveryLayout) {
  const WeightsByName decoded = decoded_weights(config("decoded", {}));
  for (const LoraLayout& how : layouts_of_codes()) {
    const Config coded = config("coded", how, GetParam().quantize);
    EXPECT_EQ(on_layout<std::string>(coded,
                                     [&](World& world) {
                                       Rig rig(world, coded);
                                       load_weights(coded, rig.boosted, rig.plugin->mesh());
                                       const std::string mine = different_records(rig, decoded);
                                       EXPECT_EQ(mine, "") << describe(how);
                                       return mine;
                                     }),
              "")
        << describe(how);
  }
}

TEST_P(PublishedCodes, TrainingIsThatOfTheDecodedBase) {
  LoraRun decoded = run_from_base(config("decoded", {}), 2);
  EXPECT_NE(decoded.losses[0], decoded.losses[1]);
  for (const LoraLayout& how : layouts_of_codes()) {
    const LoraRun coded = run_from_base(config("coded", how, GetParam().quantize), 2);
    LoraRun expected = decoded;
    expected.weights = {};  // records are not compared
    for (const auto& [name, values] : coded.weights) expected.weights.set(name, decoded.weights.at(name));
    EXPECT_LT(expected.weights.size(), decoded.weights.size());
    expect_same_run(expected, coded, describe(how));
    if (HasFailure()) return;
  }
}

std::string refused_base(const Config& config) {
  return on_layout<std::string>(config, [&](World& world) {
    Rig rig(world, config);
    return thrown_by([&] { load_weights(config, rig.boosted, rig.plugin->mesh()); });
  });
}

// fp8 encodes real numbers by their largest magnitudes; MXFP4 comes from files only.
TEST_P(PublishedCodes, BasesOfRealNumbers) {
  const std::string said = refused_base(config("decoded", {}, GetParam().quantize));
  if (GetParam().quantize == "fp8")
    EXPECT_EQ(said, "no error");
  else
    EXPECT_THAT(said, HasSubstr("the weight is not stored in MXFP4, and Gantry does not compute its codes; expected "
                                "experts in MXFP4 with model.quantize: mxfp4, as in gpt-oss; remove model.quantize"));
}

TEST(PublishedCodes, Mxfp4NeedsExperts) {
  Config config = lora_config({});
  config.model.quantize = "mxfp4";
  EXPECT_THAT(thrown_by([&] { build_model(config); }),
              HasSubstr("model.quantize: mxfp4 encodes experts only, but the model has no frozen experts"));
}

}  // namespace
}  // namespace gantry::testing
