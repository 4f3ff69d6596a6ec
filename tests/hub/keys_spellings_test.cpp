// Spellings, nulls, unknown keys and quantisation of config.json, for families of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/shared_keys.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using models::CheckedKeys;
using models::decoder_spec;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CheckedKeys check(const std::string& family, const json& keys) {
  return models::check_keys(*models::find_family_reader(family), keys);
}

std::string refusal_of(const std::string& family, const json& keys) {
  return thrown_by([&] { check(family, keys); });
}

const char* const kEveryKind[] = {"llama",      "gpt2",   "bert",        "roberta",     "vit",        "t5",
                                  "whisper",    "falcon", "gemma3_text", "xlm-roberta", "distilbert", "nomic_bert",
                                  "modernbert", "mt5",    "umt5",        "bart",        "pegasus",    "electra"};

std::string judged(const std::string& family, const json& keys, const std::string& rule, const json& file) {
  return thrown_by([&] {
    const std::string line =
        models::judge_before_values([&](const json& checked) { return check(family, checked); }, keys,
                                    [&](const CheckedKeys& checked) {
                                      return models::judge_unknown_keys(checked, family, rule, file, "m/config.json");
                                    });
    throw ConfigError(line.empty() ? "nothing" : "warning: " + line);
  });
}

TEST(UnknownKeys, AreListedInOneLineForEveryKindOfModel) {
  const json keys = {{"unsloth_version", "2025.1"}, {"_private", {1, 2}}, {"empty", nullptr}};
  for (const char* family : kEveryKind) {
    EXPECT_EQ(judged(family, keys, "warn", keys),
              std::string("warning: m/config.json: 2 keys that are unknown to ") + family +
                  ": _private, unsloth_version; they have no effect; set model.unknown_keys: refuse to reject them");
    EXPECT_THAT(judged(family, keys, "refuse", keys), HasSubstr(std::string("unknown key of ") + family));
    EXPECT_EQ(judged(family, json::object(), "warn", {}), "nothing");
  }
}

// A key of the run's own configuration has no other author: it is a mistake.
TEST(UnknownKeys, OfTheRunsOwnConfigurationAreAnError) {
  EXPECT_EQ(judged("gpt2", {{"n_embdd", 8}}, "warn", json::object()),
            "model.config.n_embdd: unknown key of gpt2; expected a key of Hugging Face's config.json for gpt2; did you "
            "mean 'n_embd'?");
}

// A misspelt key is a frequent reason for the refusal of a value.
TEST(UnknownKeys, ComeBeforeRefusedValues) {
  const json none = json::object();
  EXPECT_THAT(
      judged("gpt2", {{"n_embd", 16}, {"n_hed", 2}, {"n_layer", -1}}, "warn", none),
      HasSubstr("model.config.n_hed: unknown key of gpt2; expected a key of Hugging Face's config.json for gpt2; "
                "did you mean 'n_head'?"));
  EXPECT_THAT(judged("llama", {{"hidden_size", 48}, {"num_attention_hed", 4}}, "warn", none),
              HasSubstr("model.config.num_attention_hed: unknown key of llama"));
  EXPECT_THAT(judged("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", -2.0}}}, {"my_note", 1}}, "warn", none),
              HasSubstr("model.config.my_note: unknown key"));
  // Without unknown keys, and with those of a file, the value is the error.
  EXPECT_THAT(judged("gpt2", {{"n_embd", 16}, {"n_head", 3}}, "warn", none),
              HasSubstr("model.config.n_embd: the value"));
  const json file = {{"n_embd", 16}, {"n_head", 3}, {"my_note", 1}};
  EXPECT_THAT(judged("gpt2", file, "warn", file), HasSubstr("model.config.n_embd: the value is 16"));
  // The head decides which keys are known.
  EXPECT_THAT(judged("llava", {{"architectures", {"LlavaForSequenceClassification"}}, {"my_note", 1}}, "warn", none),
              HasSubstr("model.config.architectures: the value is"));
}

TEST(UnknownKeys, WithinTheRotaryEmbeddingToo) {
  const json keys = {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"finetuned", true}}}};
  EXPECT_THAT(check("llama", keys).unknown, ElementsAre("rope_scaling.finetuned"));
}

TEST(Spellings, OlderNamesSetTheKey) {
  EXPECT_EQ(decoder_spec("llama", {{"n_layer", 3}, {"n_head", 4}, {"n_embd", 32}}).layers.size(), 3u);
  EXPECT_EQ(decoder_spec("falcon", {{"n_layer", 2}, {"n_head", 4}, {"n_embed", 32}}).hidden, 32);
  EXPECT_EQ(decoder_spec("gpt2", {{"num_hidden_layers", 5}}).layers.size(), 5u);
  EXPECT_EQ(decoder_spec("starcoder2", {{"activation_function", "relu"}}).layers[0].mlp.activation, "relu");
  EXPECT_EQ(decoder_spec("bloom", {{"n_embed", 32}, {"num_attention_heads", 4}, {"num_hidden_layers", 3}}).hidden, 32);
}

TEST(Spellings, ThatAgreeAreAccepted) {
  EXPECT_EQ(decoder_spec("falcon", {{"n_layer", 2}, {"num_hidden_layers", 2}}).layers.size(), 2u);
  EXPECT_EQ(refusal_of("llama", {{"dtype", "bfloat16"}, {"torch_dtype", "torch.bfloat16"}}), "no error");
  EXPECT_EQ(refusal_of("llama", {{"rope_theta", 5e5}, {"rope_parameters", {{"rope_theta", 5e5}}}}), "no error");
}

TEST(Spellings, ThatContradictEachOtherAreRefusedByBothNames) {
  const auto refused = [](const std::string& family, const json& keys, const char* first, const char* second) {
    const std::string line = refusal_of(family, keys);
    EXPECT_THAT(line, HasSubstr(first));
    EXPECT_THAT(line, HasSubstr(second));
  };
  refused("falcon", {{"n_layer", 2}, {"num_hidden_layers", 3}}, "num_hidden_layers: the value is 3", "n_layer");
  for (const char* family : kEveryKind)
    refused(family, {{"dtype", "bfloat16"}, {"torch_dtype", "float16"}}, "dtype: the value is", "torch_dtype");
  refused("llama", {{"rope_theta", 1e4}, {"rope_parameters", {{"rope_theta", 5e5}}}}, "config.rope_theta",
          "rope_parameters.rope_theta");
  refused("llama", {{"rope_scaling", {{"type", "linear"}, {"rope_type", "dynamic"}, {"factor", 2.0}}}}, "rope_type",
          "type");
}

// The published file of StarCoder2 7B: transformers reads hidden_act alone.
TEST(Spellings, ThatTheClassDoesNotHaveMayDiffer) {
  const json keys = {{"activation_function", "gelu"}, {"hidden_act", "gelu_pytorch_tanh"}};
  EXPECT_EQ(decoder_spec("starcoder2", keys).layers[0].mlp.activation, "gelu_pytorch_tanh");
  EXPECT_THAT(check("starcoder2", keys).unknown, ElementsAre("activation_function"));
}

TEST(Spellings, NullsAreAbsentAndBooleansMayBeText) {
  EXPECT_EQ(decoder_spec("llama", {{"num_hidden_layers", nullptr}}).layers.size(), 32u);
  EXPECT_EQ(decoder_spec("mistral", {{"num_key_value_heads", nullptr}}).layers[0].attention.key_heads, 32);
  EXPECT_EQ(decoder_spec("gpt_oss", {{"head_dim", nullptr}, {"hidden_size", 640}}).layers[0].attention.head_size, 10);
  EXPECT_TRUE(decoder_spec("llama", {{"tie_word_embeddings", "true"}}).tied);
  EXPECT_FALSE(decoder_spec("gemma", {{"tie_word_embeddings", "False"}}).tied);
  EXPECT_EQ(refusal_of("gemma2", {{"use_bidirectional_attention", "false"}}), "no error");
}

TEST(Spellings, YarnOfPhi3IsLongrope) {
  const json factors = std::vector<double>(48, 1.5);
  for (const char* type : {"yarn", "su", "longrope"})
    EXPECT_EQ(
        decoder_spec("phi3", {{"rope_scaling", {{"type", type}, {"short_factor", factors}, {"long_factor", factors}}}})
            .rotaries[0]
            .type,
        "longrope");
}

TEST(Refusals, NameTheReason) {
  EXPECT_THAT(refusal_of("bert", {{"position_embedding_type", "relative_key"}}), HasSubstr("no relative positions"));
  EXPECT_THAT(refusal_of("roberta", {{"is_decoder", true}}), HasSubstr("Gantry has no causal Roberta"));
  EXPECT_THAT(refusal_of("gpt2", {{"add_cross_attention", true}}), HasSubstr("no cross-attention"));
  EXPECT_THAT(refusal_of("mixtral", {{"router_jitter_noise", 0.01}}), HasSubstr("no noise to the router"));
  EXPECT_THAT(refusal_of("llama", {{"hidden_act", "xielu"}}), HasSubstr("an activation without weights of its own"));
  EXPECT_THAT(refusal_of("llama", {{"per_layer_config", {{"0", {{"hidden_size", 3}}}}}}),
              HasSubstr("per_layer_config"));
}

TEST(Quantisation, OfKindsThatAreNotReadIsRefusedByName) {
  const std::pair<json, const char*> kinds[] = {{{{"quant_method", "gptq"}, {"bits", 4}}, "by GPTQ in 4 bits"},
                                                {{{"quant_method", "awq"}, {"bits", 4}}, "by AWQ in 4 bits"},
                                                {{{"quant_method", "bitsandbytes"}}, "by bitsandbytes"},
                                                {{{"quant_method", "compressed-tensors"}}, "by compressed-tensors"},
                                                {{{"quant_method", "fp8"}}, "by fp8 without weight_block_size"},
                                                {{{"quant_method", "mxfp4"}}, "by MXFP4"},
                                                {{{"group_size", 64}, {"bits", 4}}, "by MLX in 4 bits"}};
  for (const char* family : kEveryKind)
    for (const auto& [how, said] : kinds) {
      const std::string line = refusal_of(family, {{"quantization_config", how}});
      EXPECT_THAT(line, HasSubstr(said)) << family;
      EXPECT_THAT(line, HasSubstr("use the repository with the unquantised weights")) << family;
    }
  EXPECT_THAT(refusal_of("llama", {{"quantization", {{"group_size", 64}, {"bits", 4}}}}),
              HasSubstr("by MLX in 4 bits"));
}

TEST(Quantisation, InBlocksOfFp8IsReadForEveryFamily) {
  const json keys = {
      {"quantization_config", {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 64}}}}};
  for (const auto& family : models::family_readers()) EXPECT_EQ(refusal_of(family.model_type, keys), "no error");
  EXPECT_EQ(models::fp8_block(keys), (std::array<std::int64_t, 2>{128, 64}));
  EXPECT_EQ(models::fp8_block(json::object()), std::nullopt);
  EXPECT_EQ(refusal_of("gpt_oss", {{"quantization_config", {{"quant_method", "mxfp4"}}}}), "no error");
}

TEST(Quantisation, OfBitsandbytesIsReadForEveryFamily) {
  for (const bool four : {true, false}) {
    const json keys = {
        {"quantization_config", {{"quant_method", "bitsandbytes"}, {"load_in_4bit", four}, {"load_in_8bit", !four}}}};
    for (const auto& family : models::family_readers()) EXPECT_EQ(refusal_of(family.model_type, keys), "no error");
  }
}

TEST(ModelTypes, ThatAreNoFamilyAreRefusedWithTheNearestName) {
  EXPECT_THAT(
      thrown_by([] {
        models::refuse_model_type("m", "qwen4", {"llama", "qwen2", "qwen3"});
      }),
      HasSubstr("model_type 'qwen4' is not supported by Gantry; expected one of llama, qwen2, qwen3; did you mean"));
}

TEST(Architectures, OfAnotherHeadLeaveTheBody) {
  EXPECT_EQ(models::architecture_key({{"architectures", {"LlamaModel"}}}), "LlamaModel");
  EXPECT_EQ(models::architecture_key({{"architectures", nullptr}}), "");
  for (const char* head : {"BertForPreTraining", "BertLMHeadModel", "SomethingElse"})
    EXPECT_EQ(refusal_of("bert", {{"architectures", {head}}}), "no error");
  EXPECT_EQ(refusal_of("vit", {{"architectures", {"ViTModel"}}}), "no error");
  EXPECT_EQ(refusal_of("t5", {{"architectures", {"T5WithLMHeadModel"}}}), "no error");
}

}  // namespace
}  // namespace gantry::testing
