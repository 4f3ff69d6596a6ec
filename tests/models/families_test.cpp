// The described families compared with transformers: logits,
// loss, gradients, greedy tokens, and round trips of files.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/model_family.h"
#include "gantry/policies/decoder.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string name_of_case(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = std::filesystem::path(info.param).filename().string();
  if (!info.param.starts_with(GANTRY_SOURCE_DIR)) name += "_more";
  return name;
}

class Families : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, Families, ::testing::ValuesIn(family_cases(GANTRY_SOURCE_DIR "/tests/golden/families")),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Mtp, Families, ::testing::ValuesIn(family_cases(GANTRY_SOURCE_DIR "/tests/golden/mtp")),
                         name_of_case);

TEST_P(Families, LogitsLossAndGradientsInManyLayouts) {
  for (const FamilyLayout& how : family_layouts(GetParam())) {
    expect_family(GetParam(), run_family(GetParam(), how.layout, how.sequence_parallel, precision_of_case(GetParam())),
                  describe(how));
    if (HasFailure()) return;
  }
}

// config_hub.json: the same model with the keys of published files.
TEST_P(Families, PublishedKeysGiveTheSameNumbers) {
  const std::string path = GetParam() + "/config_hub.json";
  if (!std::filesystem::exists(path)) return;
  const ScratchFolder scratch;
  scratch.write("config.json", read_file(path));
  for (const char* file : {"model.safetensors", "inputs.safetensors"})
    std::filesystem::copy_file(GetParam() + "/" + file, scratch / file);
  expect_family(GetParam(), run_family(scratch.path(), {}, false), "config_hub.json");
  const json keys = json::parse(read_file(path));
  const auto& family = models::families().at(models::family_of(keys));
  EXPECT_THAT(family.check(keys).unknown, ::testing::IsEmpty());
}

TEST_P(Families, GreedyTokensWithACache) {
  const std::string path = GetParam() + "/generate.json";
  if (!std::filesystem::exists(path)) return;  // the case has none: its frequencies change with the length
  if (!is_causal_case(GetParam()) || has_images(GetParam())) return;
  const json expected = json::parse(read_file(path))["tokens"];
  const torch::Tensor ids = read_safetensors(GetParam() + "/inputs.safetensors").at("input_ids");
  GenerationJob job{.name = "greedy", .prompts = {}, .options = {.max_new_tokens = 12}};
  for (std::int64_t row = 0; row < ids.size(0); ++row) {
    const torch::Tensor prompt = ids[row].narrow(0, 0, 6).contiguous();
    job.prompts.emplace_back(prompt.data_ptr<std::int64_t>(), prompt.data_ptr<std::int64_t>() + 6);
  }
  const int tensor = std::min(3, largest_tensor(GetParam()));
  for (const Layout& layout : turn_of<Layout>(
           next_turn("layouts"), 2, {{}, {.tensor = 2}, {.pipeline = 2, .tensor = tensor}, {.pipeline = 2}})) {
    const auto sequences = generate_in(layout, GetParam(), {job}).at(0);
    for (std::size_t row = 0; row < sequences.size(); ++row) {
      const auto tokens = sequences[row].tokens;
      EXPECT_EQ(TokenIds(tokens.end() - 12, tokens.end()), expected[row].get<TokenIds>())
          << describe(layout) << " row " << row;
    }
  }
}

TEST_P(Families, ShapesOfTheDescriptionAreTheModules) {
  if (!is_causal_case(GetParam())) return;
  json keys = json::parse(read_file(GetParam() + "/config.json"));
  keys.update(json::parse(extra_keys(GetParam())));
  const models::DecoderImpl model(models::decoder_spec(keys["model_type"], keys));
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const auto& parameter : models::parameter_shapes(model.spec)) shapes[parameter.name] = parameter.shape;
  const auto parameters = model.named_parameters();
  for (const auto& item : parameters) {
    if (model.spec.tied && item.key() == model.spec.names.head + ".weight") continue;
    ASSERT_TRUE(shapes.contains(item.key())) << item.key();
    EXPECT_EQ(shapes.at(item.key()), item.value().sizes().vec()) << item.key();
  }
  EXPECT_EQ(shapes.size(),
            parameters.size() - (model.spec.tied && parameters.contains(model.spec.names.head + ".weight")));
}

// config_hub.json has the keys of published files of the family, in older spellings.
TEST_P(Families, KeysOfPublishedFilesDescribeTheSameModel) {
  if (!std::filesystem::exists(GetParam() + "/config_hub.json")) return;
  const ScratchFolder scratch;
  for (const char* file : {"model.safetensors", "inputs.safetensors", "expected.safetensors"})
    std::filesystem::copy_file(GetParam() + "/" + file, scratch / file);
  scratch.write("config.json", read_file(GetParam() + "/config_hub.json"));
  const Layout layout{.pipeline = has_one_stage(GetParam()) ? 1 : 2, .tensor = 2};
  expect_family(scratch.path(), run_family(scratch.path(), layout, true, precision_of_case(GetParam())),
                "config_hub.json");
}

std::string refusal(const std::string& family, const json& keys) {
  return thrown_by([&] { models::decoder_spec(family, keys); });
}

TEST(FamilyKeys, WhatChangesNumbersAndIsNotUnderstoodIsRefused) {
  EXPECT_THAT(refusal("qwen2", {{"layer_types", {"full_attention"}}}), HasSubstr("a list of 32 words"));
  EXPECT_THAT(refusal("llama", {{"rope_scaling", {{"rope_type", "mrope"}}}}), HasSubstr("rope_type"));
  EXPECT_THAT(refusal("phi3", {{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1.0}}}}}),
              HasSubstr("short_factor"));
  EXPECT_THAT(refusal("gemma2", {{"use_bidirectional_attention", true}}), HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(refusal("gpt_neox", {{"hidden_size", 10}, {"num_attention_heads", 4}}), HasSubstr("multiple of"));
  EXPECT_THAT(refusal("mixtral", {{"router_jitter_noise", 0.1}}), HasSubstr("router_jitter_noise"));
  EXPECT_THAT(refusal("qwen3_moe", {{"num_experts", 8}, {"num_local_experts", 4}}), HasSubstr("num_local_experts"));
  EXPECT_THAT(refusal("qwen2_moe", {{"mlp_only_layers", {-1}}}), HasSubstr("a list of layers"));
  EXPECT_THAT(refusal("deepseek_v3", {{"topk_method", "greedy"}}), HasSubstr("topk_method"));
  EXPECT_THAT(
      refusal("deepseek_v3", {{"num_experts_per_tok", 9}, {"n_routed_experts", 16}, {"n_group", 4}, {"topk_group", 2}}),
      HasSubstr("a number from 1 to the 8 experts that a token can choose"));
  EXPECT_THAT(refusal("deepseek_v2", {{"norm_topk_prob", true}}), HasSubstr("norm_topk_prob"));
  EXPECT_THAT(refusal("deepseek_v2", {{"topk_method", "group_limited_greedy"}, {"n_group", 5}, {"topk_group", 2}}),
              HasSubstr("a divisor of the 64 experts, with at least 1 experts per group"));
  EXPECT_THAT(refusal("minimax_m2", {{"num_hidden_layers", 2}, {"attn_type_list", {1, 0}}}),
              HasSubstr("attn_type_list"));
  EXPECT_THAT(refusal("minimax_m2", {{"rotary_dim", 256}}), HasSubstr("at most head_dim 128"));
  EXPECT_THAT(refusal("exaone4", {{"sliding_window_pattern", "LLLG"}}), HasSubstr("layer_types"));
  EXPECT_THAT(refusal("gpt_neo", {{"num_layers", 4}}), HasSubstr("the 24 layers of attention_types"));
  EXPECT_THAT(refusal("gpt_neo", {{"attention_types", {1, 2}}}), HasSubstr("attention_types"));
  EXPECT_THAT(refusal("codegen", {{"n_head", 6}, {"n_embd", 12}, {"rotary_dim", 2}}), HasSubstr("a multiple of 4"));
  EXPECT_THAT(refusal("gpt_bigcode", {{"scale_attn_by_inverse_layer_idx", true}}),
              HasSubstr("scale_attn_by_inverse_layer_idx"));
  EXPECT_THAT(refusal("hunyuan_v1_dense", {{"use_qk_norm", false}}), HasSubstr("use_qk_norm"));
  EXPECT_THAT(refusal("helium", {{"head_dim", 64}}), HasSubstr("hidden_size / num_attention_heads"));
  EXPECT_THAT(refusal("lama", {}), HasSubstr("one of apertus, bamba, bloom, codegen"));
}

TEST(FamilyKeys, ThoseOfASmallModelAreAccepted) {
  for (const auto& family : models::decoder_families())
    EXPECT_EQ(refusal(family.model_type, family.small), "no error") << family.model_type;
}

// The keys of a case, with those that its stored tensors decide.
json resolved_keys(const std::string& folder) {
  Config config;
  config.model.path = folder;
  config.model.config_json = extra_keys(folder);
  return json::parse(resolve_model(std::move(config)).model.config_json);
}

TEST_P(Families, FilesThereAndBackAreTheSameBytes) {
  const json keys = resolved_keys(GetParam());
  const auto& family = models::families().at(keys["model_type"].get<std::string>());
  const auto model = family.build(keys);
  const std::vector<HeldTensor> held = full_parameters(*model);
  TensorDict values;
  for (const auto& [placement, tensor] : held) values.set(placement.name, tensor);
  load_hugging_face(GetParam(), family, keys, held, {});
  std::vector<ExportTensor> tensors;
  for (const auto& [name, tensor] : to_hugging_face(family.tensor_names(keys), values))
    tensors.push_back({name, tensor.sizes().vec(), tensor.scalar_type(), [tensor = tensor] { return tensor; }});
  for (auto& tensor : tensors_of_other_parts(GetParam(), family, keys)) tensors.push_back(std::move(tensor));
  const ScratchFolder scratch;
  const std::string stored = keys.value("dtype", "float32");
  save_hugging_face(scratch / "out", family.hugging_face_config(keys), tensors,
                    {.type = stored == "bfloat16" ? torch::kBFloat16 : torch::kFloat32});
  EXPECT_TRUE(read_file(scratch / "out/model.safetensors") == read_file(GetParam() + "/model.safetensors"));
  EXPECT_EQ(json::parse(read_file(scratch / "out/config.json"))["architectures"], keys["architectures"]);
}

TEST(FamilyKeys, BothSpellingsOfTheRotaryEmbeddingSayTheSame) {
  const auto rotary = [](const json& keys) { return models::decoder_spec("glm4", keys).rotaries.at(0); };
  const auto older = rotary({{"rope_theta", 500000.0},
                             {"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}},
                             {"partial_rotary_factor", 0.5}});
  const auto newer =
      rotary({{"rope_parameters",
               {{"rope_type", "yarn"}, {"factor", 4.0}, {"rope_theta", 500000.0}, {"partial_rotary_factor", 0.5}}}});
  EXPECT_EQ(older.theta, newer.theta);
  EXPECT_EQ(older.type, newer.type);
  EXPECT_EQ(older.factor, newer.factor);
  EXPECT_EQ(older.rotated, newer.rotated);
  EXPECT_EQ(older.rotated, 64);
}

// transformers passes over the key in families that rotate all features.
TEST(FamilyKeys, APartOfEachHeadIsRotatedWhereTransformersDoesSo) {
  const auto rotated = [](const char* family, const json& keys) {
    return models::decoder_spec(family, keys).rotaries.at(0).rotated;
  };
  const json half = {{"head_dim", 64}, {"partial_rotary_factor", 0.5}};
  for (const char* family : {"llama", "mistral", "qwen3", "gemma2", "cohere", "olmo2"})
    EXPECT_EQ(rotated(family, half), 64) << family;
  const json nested = {{"head_dim", 64}, {"rope_parameters", {{"partial_rotary_factor", 0.5}}}};
  EXPECT_EQ(rotated("llama", nested), 64);
  EXPECT_THAT(models::families().at("llama").check(nested).unknown,
              ::testing::ElementsAre("rope_parameters.partial_rotary_factor"));
  for (const char* family : {"glm4", "glm4_moe", "phi3", "stablelm", "nemotron"})
    EXPECT_EQ(rotated(family, {{"hidden_size", 128},
                               {"num_attention_heads", 2},
                               {"num_key_value_heads", 2},
                               {"head_dim", 64},
                               {"partial_rotary_factor", 0.5}}),
              32)
        << family;
  EXPECT_THROW(
      rotated("llama", {{"head_dim", 64}, {"partial_rotary_factor", 0.5}, {"rope_scaling", {{"type", "linear"}}}}),
      ConfigError);
  EXPECT_THROW(rotated("bamba", {{"partial_rotary_factor", 1.0}}), ConfigError);
  EXPECT_THROW(rotated("gpt_neox", {{"partial_rotary_factor", 1.0}}), ConfigError);
  EXPECT_THROW(rotated("gpt_neox", {{"rope_theta", 500.0}}), ConfigError);
}

TEST(FamilyKeys, BasesOfRotaryEmbeddingsAreThoseOfTransformers) {
  const auto bases = [](const char* family, const json& keys) {
    std::vector<double> all;
    for (const auto& rotary : models::decoder_spec(family, keys).rotaries) all.push_back(rotary.theta);
    return all;
  };
  using Bases = std::vector<double>;
  EXPECT_EQ(bases("gpt_oss", {{"rope_theta", 500.0}}), (Bases{500}));
  EXPECT_EQ(models::decoder_spec("gpt_oss", {{"rope_theta", 500.0}}).rotaries.at(0).type, "yarn");
  EXPECT_EQ(bases("olmo3", {{"rope_theta", 10000.0}}), (Bases{10000, 500000}));
  EXPECT_EQ(bases("olmo3", {{"rope_parameters", {{"full_attention", {{"rope_theta", 7.0}}}}}}), (Bases{7, 500000}));
  EXPECT_EQ(
      bases("gemma3_text",
            {{"rope_theta", 500.0},
             {"rope_local_base_freq", 20.0},
             {"rope_parameters",
              {{"full_attention", {{"rope_type", "default"}}}, {"sliding_attention", {{"rope_type", "default"}}}}}}),
      (Bases{500, 20}));
  for (const json& flat : {json{{"rope_parameters", {{"rope_type", "linear"}, {"factor", 8.0}}}},
                           json{{"rope_scaling", {{"type", "linear"}, {"factor", 8.0}}}}})
    for (const char* family : {"gemma3_text", "gemma3n_text", "olmo3"}) EXPECT_THROW(bases(family, flat), ConfigError);
}

// The attention of OLMo hybrid has no rotary embedding if its base is null, and one if the key is missing.
TEST(FamilyKeys, ABaseOfNullMeansNoRotation) {
  const auto rotary = [](const json& keys) {
    json all = {{"num_hidden_layers", 4}};
    all.update(keys);
    return models::decoder_spec("olmo_hybrid", all).layers.at(3).attention.rotary;
  };
  EXPECT_EQ(rotary(json::object()), 0);
  EXPECT_EQ(rotary({{"rope_parameters", {{"rope_type", "default"}}}}), 0);
  EXPECT_EQ(rotary({{"rope_theta", nullptr}}), -1);
  EXPECT_EQ(rotary({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", nullptr}}}}), -1);
}

TEST(FamilyKeys, HeadsForLabelsReadThePaddingTokenOfEveryFamily) {
  for (const auto& [family, architecture] : std::map<std::string, std::string>{
           {"gpt2", "GPT2"}, {"bloom", "Bloom"}, {"gpt_neox", "GPTNeoX"}, {"falcon", "Falcon"}, {"llama", "Llama"}}) {
    const auto spec = models::decoder_spec(
        family,
        {{"architectures", {architecture + "ForSequenceClassification"}}, {"num_labels", 1}, {"pad_token_id", 3}});
    EXPECT_EQ(spec.labels, 1) << family;
    EXPECT_EQ(spec.label_padding, 3) << family;
    EXPECT_EQ(spec.padding.has_value(), family == "llama") << family;
  }
  const json last = {
      {"architectures", {"OPTForSequenceClassification"}}, {"num_labels", 1}, {"pad_token_id", -1}, {"vocab_size", 50}};
  const auto opt = models::decoder_spec("opt", last);
  EXPECT_EQ(opt.label_padding, 49);
  EXPECT_EQ(opt.padding, 49);
}

// As in transformers 5.24, whose Llama 4 with images contains a Llama4ForCausalLM.
TEST(FamilyKeys, OnlyTheDecodersOwnKeyTiesLlama4) {
  const auto is_tied = [](const json& decoder, const json& outside) {
    json keys = {{"text_config", decoder}};
    keys.update(outside);
    return models::decoder_spec("llama4", keys).tied;
  };
  const json tied = {{"tie_word_embeddings", true}}, apart = {{"tie_word_embeddings", false}}, none = json::object();
  for (const json& outside : {tied, apart, none}) {
    EXPECT_TRUE(is_tied(tied, outside)) << outside;
    EXPECT_FALSE(is_tied(apart, outside)) << outside;
    EXPECT_FALSE(is_tied(none, outside)) << outside;
  }
}

TEST(FamilyKeys, CapsOfGemma3AreThoseThatTransformersApplies) {
  const json caps = {{"attn_logit_softcapping", 2.0}, {"final_logit_softcapping", 3.0}};
  const auto text = models::decoder_spec("gemma3_text", caps);
  EXPECT_EQ(text.layers.at(0).attention.soft_cap, 0);
  EXPECT_EQ(text.logit_soft_cap, 3);
  EXPECT_EQ(models::decoder_spec("gemma3", {{"text_config", caps}}).logit_soft_cap, 0);
}

TEST(FamilyKeys, ActivationsAndBiasesThatDependOnOtherKeysAreRefused) {
  EXPECT_THROW(models::decoder_spec("kimi_linear", {{"hidden_act", "gelu"}}), ConfigError);
  EXPECT_THROW(models::decoder_spec("bloom", {{"slow_but_exact", true}, {"pretraining_tp", 2}}), ConfigError);
  EXPECT_NO_THROW(models::decoder_spec("bloom", {{"slow_but_exact", true}, {"pretraining_tp", 1}}));
  EXPECT_NO_THROW(models::decoder_spec("llama4_text", {{"attention_chunk_size", nullptr}}));
  EXPECT_TRUE(models::decoder_spec("lfm2", {{"tie_embedding", true}, {"tie_word_embeddings", false}}).tied);
}

TEST(FamilyKeys, WindowsGoByLayer) {
  const auto windows = [](const models::DecoderSpec& spec) {
    std::vector<std::int64_t> all;
    for (const auto& layer : spec.layers) all.push_back(layer.attention.window);
    return all;
  };
  using Windows = std::vector<std::int64_t>;
  const json layers = {{"num_hidden_layers", 3}, {"sliding_window", 8}};
  const auto with = [&](json more) {
    json keys = layers;
    keys.update(more);
    return keys;
  };
  EXPECT_EQ(windows(models::decoder_spec("mistral", layers)), (Windows{8, 8, 8}));
  EXPECT_EQ(windows(models::decoder_spec("mistral", with({{"sliding_window", nullptr}}))), (Windows{0, 0, 0}));
  EXPECT_EQ(windows(models::decoder_spec("gemma2", layers)), (Windows{8, 0, 8}));
  EXPECT_EQ(windows(models::decoder_spec("qwen2", layers)), (Windows{0, 0, 0}));
  EXPECT_EQ(windows(models::decoder_spec("qwen2", with({{"use_sliding_window", true}, {"max_window_layers", 2}}))),
            (Windows{0, 0, 8}));
  EXPECT_EQ(windows(models::decoder_spec(
                "gemma2", with({{"layer_types", {"full_attention", "full_attention", "sliding_attention"}}}))),
            (Windows{0, 0, 8}));
}

// docs/models.md: Llama with a cap on its logits, as a program's own family.
models::DecoderSpec read_capped(models::ConfigReader& reader) {
  models::DecoderSpec spec = models::read_common(reader, {.hidden = 512, .layers = 8, .heads = 8});
  spec.logit_soft_cap = reader.number("logit_cap", 30, 0, 1e6);
  return spec;
}

TEST(OwnFamily, IsReadTrainedAndSplitAsAnyOther) {
  add_decoder_family({.model_type = "capped", .architecture = "CappedForCausalLM", .read = read_capped});
  const ScratchFolder scratch;
  const std::string folder = GANTRY_SOURCE_DIR "/tests/golden/families/mistral";
  json keys = json::parse(read_file(folder + "/config.json"));
  keys["model_type"] = "capped";
  keys["logit_cap"] = 2.0;
  keys.erase("sliding_window");
  scratch.write("config.json", keys.dump());
  for (const char* file : {"model.safetensors", "inputs.safetensors"})
    std::filesystem::copy_file(folder + "/" + file, scratch / file);
  const FamilyOutcome one = run_family(scratch.path(), {}, false, "float64");
  EXPECT_LE(one.outputs.at("logits").abs().max().item<double>(), 2.0);
  const FamilyOutcome split = run_family(scratch.path(), {.pipeline = 2, .tensor = 2}, true, "float64");
  EXPECT_NEAR(one.loss, split.loss, 1e-12);
  for (const auto& [name, gradient] : one.gradients)
    EXPECT_LE((gradient - split.gradients.at(name)).abs().max().item<double>(), 1e-11) << name;
}

}  // namespace
}  // namespace gantry::testing
