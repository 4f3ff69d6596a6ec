// The keys of a model's configuration that decide what the model computes.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/models/model_family.h"

namespace gantry::testing {
namespace {

using nlohmann::json;

json keys_of(const std::string& family, const std::string& keys) {
  return models::config_fingerprint(models::families().at(family), json::parse(keys));
}

struct Pair {
  const char* family;
  const char* one;
  const char* other;
};

TEST(DecidingKeys, AreTheSameForTheSameFunction) {
  for (const auto& [family, one, other] : {
           Pair{"gpt2", "{}", R"({"n_head": 12, "layer_norm_epsilon": 1e-5, "n_inner": null})"},
           {"gpt2", R"({"n_embd": 16, "n_head": 2})", R"({"n_embd": 16, "n_head": 2, "n_inner": 64})"},
           {"gpt2", R"({"resid_pdrop": 0.5, "torch_dtype": "float16"})",
            R"({"initializer_range": 1, "eos_token_id": 3, "use_cache": false, "model_type": "gpt2"})"},
           {"bert", R"({"pad_token_id": 1, "hidden_dropout_prob": 0.3})", R"({"architectures": ["BertForMaskedLM"]})"},
           // The two spellings of rotary positions; the context length does not matter.
           {"llama", R"({"rope_theta": 5e5, "max_position_embeddings": 64})",
            R"({"rope_parameters": {"rope_type": "default", "rope_theta": 500000}, "num_key_value_heads": 32})"},
           {"llama", R"({"rope_scaling": {"type": "linear", "factor": 2}})",
            R"({"rope_parameters": {"rope_type": "linear", "factor": 2.0}, "attention_dropout": 0.1})"},
       })
    EXPECT_EQ(keys_of(family, one), keys_of(family, other)) << family << " " << one << " " << other;
}

TEST(DecidingKeys, DifferWhereEqualShapesComputeSomethingElse) {
  for (const auto& [family, one, other] : {
           Pair{"gpt2", R"({"n_head": 2})", R"({"n_head": 4})"},
           {"gpt2", "{}", R"({"activation_function": "relu"})"},
           {"gpt2", "{}", R"({"layer_norm_epsilon": 1e-6})"},
           {"bert", R"({"num_attention_heads": 2})", R"({"num_attention_heads": 4})"},
           {"bert", "{}", R"({"hidden_act": "relu"})"},
           {"llama", "{}", R"({"rope_theta": 5e5})"},
           {"llama", "{}", R"({"rms_norm_eps": 1e-5})"},
           {"llama", "{}", R"({"rope_scaling": {"rope_type": "linear", "factor": 2}})"},
           // Llama-3's scaling depends on the original length, which defaults to the context length.
           {"llama", R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}, "max_position_embeddings": 64})",
            R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}, "max_position_embeddings": 128})"},
       })
    EXPECT_NE(keys_of(family, one), keys_of(family, other)) << family << " " << one << " " << other;
}

TEST(DecidingKeys, OfAFamilyThatDoesNotSayAreAllButTheKnownOnes) {
  models::ModelFamily family;
  const json keys = {{"width", 8}, {"attention_dropout", 0.1}, {"initializer_range", 1}, {"pad_token_id", 0}};
  EXPECT_EQ(models::config_fingerprint(family, keys), json({{"width", 8}}));
  family.hugging_face_config = [](const json& some) {
    json full = some;
    full["depth"] = 4;
    return full;
  };
  EXPECT_EQ(models::config_fingerprint(family, keys), json({{"width", 8}, {"depth", 4}}));
  family.config_fingerprint = [](const json& some) { return json{{"only", some["width"]}}; };
  EXPECT_EQ(models::config_fingerprint(family, keys), json({{"only", 8}}));
}

}  // namespace
}  // namespace gantry::testing
