// Directories whose files contradict the model that they claim to be. Each is rejected in one line, with the
// exit code of the problem.
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kOfConfig = ConfigError::kExitCode, kOfFiles = InputError::kExitCode;
constexpr const char* kIndexOfShards = "model.safetensors.index.json";

std::string folder_of_case(const std::string& family) { return GANTRY_SOURCE_DIR "/tests/golden/families/" + family; }

// Loads the directory like one rank does.
void expect_refused(const std::string& folder, int exit_code, const std::string& said) {
  Config config;
  config.model.path = folder;
  try {
    config = resolve_model(std::move(config));
    const auto& family = models::families().at(config.model.policy);
    const json keys = json::parse(config.model.config_json);
    const auto model = family.build(keys);
    load_hugging_face(folder, family, keys, full_parameters(*model), {});
    ADD_FAILURE() << "no error; expected " << said;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), exit_code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(said));
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
  }
}

struct WrongModel {
  const char* family;
  std::function<void(json& keys, TensorDict& tensors)> change;
  int exit_code;
  const char* said;
};

auto with(const char* key, json value) {
  return [key, value = std::move(value)](json& keys, TensorDict&) { keys[key] = value; };
}
auto shorter(const char* name) {  // by one row
  return [name](json&, TensorDict& tensors) {
    const torch::Tensor full = tensors.at(name);
    tensors.set(name, full.narrow(0, 0, full.size(0) - 1).contiguous());
  };
}
auto whole_numbers(const char* name) {
  return [name](json&, TensorDict& tensors) { tensors.set(name, tensors.at(name).to(torch::kInt32)); };
}
auto renamed(const char* from, const char* to) {
  return [from, to](json&, TensorDict& tensors) {
    TensorDict others;
    for (const auto& [name, tensor] : tensors) others.set(name == from ? to : name, tensor);
    tensors = others;
  };
}

void expect_all_refused(const std::vector<WrongModel>& models) {
  for (const WrongModel& what : models) {
    SCOPED_TRACE(std::string(what.family) + ": " + what.said);
    json keys = json::parse(read_file(folder_of_case(what.family) + "/config.json"));
    TensorDict tensors = read_safetensors(folder_of_case(what.family) + "/model.safetensors");
    what.change(keys, tensors);
    const ScratchFolder scratch;
    scratch.write("config.json", keys.dump());
    write_safetensors(scratch / "model.safetensors", tensors);
    expect_refused(scratch.path(), what.exit_code, what.said);
  }
}

TEST(HostileFolders, OfEncodersAndDecoders) {
  expect_all_refused(
      {{"t5", shorter("encoder.block.1.layer.0.SelfAttention.q.weight"), kOfFiles,
        "encoder.block.1.layer.0.SelfAttention.q.weight: the tensor has the shape [23, 20]; expected [24, 20]"},
       {"t5", shorter("decoder.block.0.layer.1.EncDecAttention.k.weight"), kOfFiles,
        "EncDecAttention.k.weight: the tensor has the"},
       {"t5", renamed("encoder.block.2.layer.1.DenseReluDense.wi.weight", "encoder.block.2.layer.1.wi"), kOfFiles,
        "1 tensors are missing (encoder.block.2.layer.1.DenseReluDense.wi.weight) and 1 unexpected"},
       {"t5", whole_numbers("shared.weight"), kOfFiles, "shared.weight: the tensor is int32; expected real numbers"},
       {"t5", with("num_layers", 4), kOfFiles, "(encoder.block.3."},
       {"t5", with("num_heads", 5), kOfFiles, "has the shape"},
       {"t5", with("relative_attention_num_buckets", 6), kOfFiles,
        "relative_attention_bias.weight: the tensor has the shape [8, 4]"},
       {"t5", with("is_encoder_decoder", false), kOfConfig, "model.config.is_encoder_decoder: the value is false"},
       {"t5", with("feed_forward_proj", "gated-gelu"), kOfConfig,
        "model.config.is_gated_act: the value is false; expected true"},
       {"t5", with("dense_act_fn", "silu"), kOfConfig,
        "model.config.dense_act_fn: the value is \"silu\"; expected \"relu\""},
       {"t5", with("decoder_start_token_id", 61), kOfConfig, "below vocab_size 61"},
       {"t5", with("model_type", "t55"), kOfConfig, "did you mean 't5'?"},
       {"t5", with("model_type", 5), kOfConfig, "model_type '5' is not supported by Gantry"},
       {"whisper", shorter("model.encoder.conv2.weight"), kOfFiles,
        "model.encoder.conv2.weight: the tensor has the shape"},
       {"whisper", with("max_source_positions", 11), kOfFiles,
        "encoder.embed_positions.weight: the tensor has the shape"},
       {"whisper", with("decoder_layers", 9), kOfFiles, "model.decoder.layers.8."},
       {"whisper", with("num_hidden_layers", 7), kOfConfig,
        "model.config.encoder_layers: the value is 2; expected the value of its other spelling num_hidden_layers, "
        "which is 7"},
       {"whisper", with("encoder_attention_heads", 7), kOfConfig, "a multiple of encoder_attention_heads 7"},
       {"vit", shorter("vit.encoder.layer.1.attention.attention.key.weight"), kOfFiles,
        "attention.key.weight: the tensor has the"},
       {"vit", with("patch_size", 2), kOfFiles, "has the shape"},
       {"vit", with("qkv_bias", false), kOfFiles, "0 tensors are missing"},
       {"vit", with("num_labels", 7), kOfConfig,
        "model.config.num_labels: the value is 7; expected the 5 labels of id2label"},
       {"roberta", with("id2label", json::array({"no"})), kOfConfig,
        "model.config.id2label: the value is [\"no\"]; expected a mapping"}});
}

TEST(HostileFolders, OfExperts) {
  expect_all_refused(
      {{"mixtral", shorter("model.layers.0.block_sparse_moe.experts.1.w2.weight"), kOfFiles,
        "experts.1.w2.weight: the tensor has the shape"},
       {"mixtral", shorter("model.layers.1.block_sparse_moe.gate.weight"), kOfFiles,
        "gate.weight: the tensor has the shape"},
       {"mixtral", whole_numbers("model.layers.0.block_sparse_moe.experts.1.w2.weight"), kOfFiles, "is int32"},
       {"mixtral", with("num_local_experts", 9), kOfFiles, "block_sparse_moe.experts.8.w1.weight"},
       {"mixtral", with("num_experts_per_tok", 99), kOfConfig, "model.config.num_experts_per_tok: the value is 99"},
       {"mixtral", with("num_experts", 3), kOfConfig,
        "expected the value of its other spelling num_experts, which is 3"},
       {"qwen2_moe", with("mlp_only_layers", {99}), kOfConfig,
        "model.config.mlp_only_layers: the value is [99]; expected a list"},
       {"qwen2_moe", with("shared_expert_intermediate_size", 5), kOfFiles, "has the shape"},
       {"qwen3_moe", with("num_experts", 99), kOfConfig, "model.config.num_local_experts: the value is 6; expected 99"},
       {"qwen3_moe", with("mlp_only_layers", json::array()), kOfFiles, "tensors are missing"},
       {"gpt_oss", with("experts_per_token", 1), kOfConfig,
        "model.config.experts_per_token: the value is 1; expected 2"},
       {"gpt_oss", shorter("model.layers.0.mlp.experts.gate_up_proj"), kOfFiles,
        "gate_up_proj: the tensor has the shape"},
       {"gpt_oss", with("quantization_config", {{"quant_method", "fp8"}}), kOfConfig, "fp8 without weight_block_size"},
       {"deepseek_v3", with("n_group", 3), kOfConfig, "model.config.n_group: the value is 3"},
       {"deepseek_v3", with("num_key_value_heads", 1), kOfConfig, "model.config.num_key_value_heads: the value is 1"},
       {"deepseek_v3", with("first_k_dense_replace", 0), kOfFiles, "tensors are missing"},
       {"deepseek_v3", shorter("model.layers.1.mlp.gate.e_score_correction_bias"), kOfFiles,
        "e_score_correction_bias: the tensor has the shape"}});
}

// T5 in shards, with changes to the second shard or to the index.
TEST(HostileFolders, OfShardsAndTheirIndex) {
  const std::string from = folder_of_case("t5");
  const auto refused =
      [&](const std::function<void(const ScratchFolder&, json& index, const std::string& shard)>& change,
          const char* said) {
        SCOPED_TRACE(said);
        const ScratchFolder scratch;
        std::vector<ExportTensor> tensors;
        for (const auto& [name, tensor] : read_safetensors(from + "/model.safetensors"))
          tensors.push_back({name, tensor.sizes().vec(), tensor.scalar_type(), [tensor = tensor] { return tensor; }});
        save_hugging_face(scratch / "m", json::parse(read_file(from + "/config.json")), tensors,
                          {.type = {}, .most_shard_bytes = 40'000, .progress = {}});
        json index = json::parse(read_file(scratch / "m/" + kIndexOfShards));
        const std::string shard = index["weight_map"]["shared.weight"];
        change(scratch, index, shard);
        if (!index.is_null()) scratch.write(std::string("m/") + kIndexOfShards, index.dump());
        expect_refused(scratch / "m", kOfFiles, said);
      };
  refused([](const auto& scratch, json&, const std::string& shard) { fs::remove(scratch / "m/" + shard); },
          "shards are missing: model-0000");
  refused([](const auto&, json& index,
             const std::string&) { index["weight_map"]["shared.weight"] = "of_another.safetensors"; },
          "of_another.safetensors");
  refused(
      [](const auto&, json& index, const std::string& shard) {
        for (auto& [name, file] : index["weight_map"].items())
          if (file != shard) return void(file = shard);
      },
      "which the index lists");
  refused(
      [](const auto& scratch, json& index, const std::string& shard) {
        TensorDict more = read_safetensors(scratch / "m/" + shard);
        for (const auto& [name, file] : index["weight_map"].items())
          if (file != shard) more.set(name, torch::zeros({1}));
        write_safetensors(scratch / "m/" + shard, more);
      },
      "is stored twice; expected each tensor once");
  refused(
      [](const auto& scratch, json& index, const std::string&) {
        std::string text = index.dump();
        text.insert(text.find("\"shared.weight\""), "\"shared.weight\": \"again.safetensors\", ");
        scratch.write(std::string("m/") + kIndexOfShards, text);
        index = nullptr;
      },
      "'shared.weight' appears twice");
  refused(
      [](const auto& scratch, json&, const std::string& shard) {
        const std::string bytes = read_file(scratch / "m/" + shard);
        scratch.write("m/" + shard, bytes.substr(0, bytes.size() - 1));
      },
      "a valid safetensors file");
}

}  // namespace
}  // namespace gantry::testing
