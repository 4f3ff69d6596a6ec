// The same model under other names: prefixes, spellings and forms of other versions and programs.
#include <algorithm>
#include <functional>
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kNamedCases = GANTRY_SOURCE_DIR "/tests/golden/families";

// A model of a case, loaded from a file with these tensors.
struct Loaded {
  std::vector<HeldTensor> held;
  LoadedModel found;
};

Loaded load_tensors(const std::string& folder, const TensorDict& tensors) {
  const ScratchFolder scratch;
  write_safetensors(scratch / "model.safetensors", tensors);
  const json keys = json::parse(read_file(folder + "/config.json"));
  const auto& family = models::families().at(models::family_of(keys));
  const auto model = family.build(keys);
  Loaded loaded{full_parameters(*model), {}};
  for (const auto& one : loaded.held) one.tensor.detach().fill_(0.125);
  loaded.found = load_hugging_face(scratch.path(), family, keys, loaded.held, {});
  return loaded;
}

void expect_same_model(const std::string& folder, const TensorDict& tensors, const std::string& label) {
  const Loaded expected = load_tensors(folder, read_safetensors(folder + "/model.safetensors"));
  const Loaded loaded = load_tensors(folder, tensors);
  ASSERT_EQ(loaded.held.size(), expected.held.size());
  for (std::size_t i = 0; i < expected.held.size(); ++i)
    EXPECT_TRUE(torch::equal(loaded.held[i].tensor, expected.held[i].tensor))
        << label << ": " << expected.held[i].placement.name;
}

TensorDict renamed_by(const TensorDict& tensors, const std::function<std::string(const std::string&)>& rename) {
  TensorDict result;
  for (const auto& [name, tensor] : tensors) result.set(rename(name), tensor);
  return result;
}

std::string without_prefix(const std::string& name, const std::string& model_type) {
  for (const std::string& prefix : {std::string("model."), std::string("transformer."), model_type + "."})
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  return name;
}

class FamilyNames : public ::testing::TestWithParam<std::string> {};

TEST_P(FamilyNames, PrefixesOfOtherProgramsAreKnown) {
  const TensorDict tensors = read_safetensors(GetParam() + "/model.safetensors");
  const std::string type = json::parse(read_file(GetParam() + "/config.json"))["model_type"];
  for (const std::string prefix : {"", "model.", "transformer.", "transformers.", "language_model.",
                                   "language_model.model.", "model.language_model.", "module.", "_orig_mod."})
    expect_same_model(GetParam(),
                      renamed_by(tensors, [&](const std::string& name) { return prefix + without_prefix(name, type); }),
                      prefix);
}

TEST_P(FamilyNames, NormsOfOlderVersionsSayGammaAndBeta) {
  const auto old = [](const std::string& name) {
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::size_t dot = name.rfind('.');
    if (lower.find("norm") == std::string::npos || dot == std::string::npos) return name;
    if (name.ends_with(".weight")) return name.substr(0, dot) + ".gamma";
    return name.ends_with(".bias") ? name.substr(0, dot) + ".beta" : name;
  };
  expect_same_model(GetParam(), renamed_by(read_safetensors(GetParam() + "/model.safetensors"), old), "gamma");
}

INSTANTIATE_TEST_SUITE_P(All, FamilyNames, ::testing::ValuesIn(family_cases(kNamedCases)),
                         [](const auto& test) { return test.param.substr(test.param.rfind('/') + 1); });

// Replaces the tensors of experts, which are named {} behind the number of each, by one stack of each kind.
TensorDict with_stacks(const TensorDict& tensors, const std::string& experts, const std::string& stacked,
                       const std::vector<std::string>& kinds) {
  TensorDict result;
  std::map<std::string, std::map<int, std::map<std::string, torch::Tensor>>> found;  // by layer, expert and kind
  for (const auto& [name, tensor] : tensors) {
    const std::size_t at = name.find(experts);
    if (at == std::string::npos) {
      result.set(name, tensor);
      continue;
    }
    const std::size_t number = at + experts.size(), dot = name.find('.', number);
    found[name.substr(0, at)][std::stoi(name.substr(number))][name.substr(dot + 1)] = tensor;
  }
  for (const auto& [layer, each] : found) {
    std::vector<torch::Tensor> gate_up, down;
    for (const auto& [expert, parts] : each) {
      gate_up.push_back(torch::cat({parts.at(kinds[0] + ".weight"), parts.at(kinds[1] + ".weight")}));
      down.push_back(parts.at(kinds[2] + ".weight"));
    }
    result.set(layer + stacked + ".gate_up_proj", torch::stack(gate_up));
    result.set(layer + stacked + ".down_proj", torch::stack(down));
  }
  return result;
}

TEST(FamilyForms, ExpertsApartOrStacked) {
  for (const std::string family : {"qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "glm4_moe", "olmoe"}) {
    const std::string folder = kNamedCases + "/" + family;
    const TensorDict tensors = read_safetensors(folder + "/model.safetensors");
    expect_same_model(
        folder, with_stacks(tensors, "mlp.experts.", "mlp.experts", {"gate_proj", "up_proj", "down_proj"}), family);
  }
  const std::string folder = kNamedCases + "/mixtral";
  TensorDict tensors = with_stacks(read_safetensors(folder + "/model.safetensors"), "block_sparse_moe.experts.",
                                   "mlp.experts", {"w1", "w3", "w2"});
  tensors = renamed_by(tensors, [](std::string name) {
    const std::size_t at = name.find("block_sparse_moe.gate");
    return at == std::string::npos ? name : name.replace(at, std::string("block_sparse_moe").size(), "mlp");
  });
  expect_same_model(folder, tensors, "mixtral");
}

// Splits the rows of a fused projection.
void split_rows(TensorDict& tensors, const std::string& fused,
                const std::vector<std::pair<std::string, std::int64_t>>& parts) {
  for (const auto& [name, tensor] : TensorDict(tensors)) {
    const std::size_t at = name.find(fused);
    if (at == std::string::npos) continue;
    std::int64_t row = 0;
    for (const auto& [part, rows] : parts) {
      tensors.set(name.substr(0, at) + part + name.substr(at + fused.size()), tensor.narrow(0, row, rows).contiguous());
      row += rows;
    }
    EXPECT_EQ(row, tensor.size(0)) << name;
    tensors.take(name);
  }
}

TEST(FamilyForms, ProjectionsFusedOrApart) {
  for (const std::string family : {"phi3", "glm4"}) {
    const std::string folder = kNamedCases + "/" + family;
    const json keys = json::parse(read_file(folder + "/config.json"));
    TensorDict tensors = read_safetensors(folder + "/model.safetensors");
    const std::int64_t width = keys["intermediate_size"], heads = keys["num_attention_heads"],
                       key_heads = keys["num_key_value_heads"],
                       size = keys.contains("head_dim") && keys["head_dim"].is_number()
                                  ? keys["head_dim"].get<std::int64_t>()
                                  : keys["hidden_size"].get<std::int64_t>() / heads;
    split_rows(tensors, "mlp.gate_up_proj", {{"mlp.gate_proj", width}, {"mlp.up_proj", width}});
    split_rows(tensors, "self_attn.qkv_proj",
               {{"self_attn.q_proj", heads * size},
                {"self_attn.k_proj", key_heads * size},
                {"self_attn.v_proj", key_heads * size}});
    expect_same_model(folder, tensors, family);
  }
}

std::string refusal_of(const std::string& folder, const TensorDict& tensors) {
  try {
    load_tensors(folder, tensors);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(FamilyForms, NamesInMessagesAreThoseOfTheFiles) {
  const std::string folder = kNamedCases + "/llama_yarn";
  TensorDict tensors = read_safetensors(folder + "/model.safetensors");
  const torch::Tensor one = torch::ones({3});
  for (const char* name :
       {"model.layers.0.self_attn.rotary_emb.inv_freq", "score.weight", "model.layers.1.self_attn.rotary_emb.inv_freq"})
    tensors.set(name, one);
  EXPECT_THAT(load_tensors(folder, tensors).found.passed_over,
              ::testing::UnorderedElementsAre("score.weight", "model.layers.0.self_attn.rotary_emb.inv_freq",
                                              "model.layers.1.self_attn.rotary_emb.inv_freq"));
  tensors.set("layers.0.extra.weight", one);
  tensors.take("model.norm.weight");
  EXPECT_THAT(refusal_of(folder, tensors),
              HasSubstr("1 tensors are missing (model.norm.weight) and 1 unexpected (layers.0.extra.weight)"));
  tensors.take("layers.0.extra.weight");
  tensors.set("model.norm.weight", torch::ones({24}));
  tensors.set("norm.weight", torch::ones({24}));
  EXPECT_THAT(refusal_of(folder, tensors),
              HasSubstr("the tensors 'model.norm.weight' and 'norm.weight' are the same one"));
}

// Files of older versions also store masks.
TEST(FamilyForms, MasksAreNotRead) {
  const std::string folder = kNamedCases + "/codegen";
  TensorDict tensors = read_safetensors(folder + "/model.safetensors");
  for (const char* name : {"transformer.h.0.attn.causal_mask", "transformer.h.0.attn.masked_bias"})
    tensors.set(name, torch::ones({1}));
  expect_same_model(folder, tensors, "codegen");
}

TEST(FamilyForms, TheHeadMayBeMissingInFilesWithAnotherHead) {
  const ScratchFolder scratch;
  const std::string folder = kNamedCases + "/gpt_neox";
  json keys = json::parse(read_file(folder + "/config.json"));
  TensorDict tensors = read_safetensors(folder + "/model.safetensors");
  tensors.take("embed_out.weight");
  EXPECT_THAT(refusal_of(folder, tensors), HasSubstr("1 tensors are missing (embed_out.weight)"));
  tensors.set("score.weight", torch::ones({2, 24}));
  keys["architectures"] = {"GPTNeoXForTokenClassification"};
  write_safetensors(scratch / "model.safetensors", tensors);
  const auto& family = models::families().at("gpt_neox");
  const auto model = family.build(keys);
  const LoadedModel found = load_hugging_face(scratch.path(), family, keys, full_parameters(*model), {});
  EXPECT_THAT(found.fresh, ElementsAre("embed_out.weight"));
  EXPECT_THAT(found.passed_over, ElementsAre("score.weight"));
}

}  // namespace
}  // namespace gantry::testing
