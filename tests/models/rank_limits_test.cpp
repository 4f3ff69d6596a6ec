// The limits of parallel.tensor and parallel.expert by the keys of a model.
#include "gantry/models/described/rank_limits.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"

namespace gantry::testing {
namespace {

using nlohmann::json;

std::string rank_refusal(const std::string& family, const json& keys, const ParallelConfig& parallel) {
  try {
    models::require_ranks(keys, family, parallel);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string tensor_refusal(int ranks, const std::string& shared, int most) {
  return "parallel.tensor: " + std::to_string(ranks) + " ranks for " + shared + "; expected at most " +
         std::to_string(most) + "; lower parallel.tensor";
}

// As many ranks as heads are possible, one more is not.
TEST(RankLimits, OfTensorAreTheHeadsOfEveryKindOfModel) {
  struct Case {
    const char* family;
    json keys;
    const char* shared;
    int most;
  };
  const Case cases[] = {
      {"llama", {{"num_attention_heads", 4}, {"num_key_value_heads", 2}}, "4 query heads", 4},
      {"deepseek_v3", {{"num_attention_heads", 6}, {"num_key_value_heads", 6}}, "6 query heads", 6},
      {"mamba2",
       {{"num_heads", 6}, {"hidden_size", 48}, {"head_dim", 16}, {"n_groups", 1}},
       "6 heads, groups or channels of the Mamba-2 mixers",
       6},
      {"bert", {{"num_attention_heads", 3}}, "3 heads", 3},
      {"distilbert", {{"n_heads", 3}}, "3 heads", 3},
      {"modernbert", {{"num_attention_heads", 3}}, "3 heads", 3},
      {"vit", {{"num_attention_heads", 3}}, "3 heads", 3},
      {"t5", {{"num_heads", 2}}, "2 heads", 2},
      {"bart", {{"encoder_attention_heads", 8}, {"decoder_attention_heads", 4}}, "4 heads", 4},
      {"whisper", {{"encoder_attention_heads", 2}, {"decoder_attention_heads", 4}}, "2 heads", 2},
      {"clip",
       {{"text_config", {{"num_attention_heads", 8}}}, {"vision_config", {{"num_attention_heads", 4}}}},
       "4 heads",
       4}};
  for (const auto& [family, keys, shared, most] : cases) {
    EXPECT_EQ(rank_refusal(family, keys, {.tensor = most}), "") << family;
    EXPECT_EQ(rank_refusal(family, keys, {.tensor = most + 1}), tensor_refusal(most + 1, shared, most)) << family;
    json typed = keys;
    typed["model_type"] = family;
    EXPECT_EQ(rank_refusal("", typed, {.tensor = most + 1}), tensor_refusal(most + 1, shared, most)) << family;
  }
}

TEST(RankLimits, OfTensorAreAlsoTheHeadsOfAnImageEncoder) {
  models::DecoderSpec spec;
  spec.layers.resize(2);
  spec.layers[1].attention.heads = spec.layers[1].attention.key_heads = 4;
  spec.layers[0].attention.heads = spec.layers[0].attention.key_heads = 8;
  EXPECT_EQ(models::tensor_limit(spec)->ranks, 4);
  spec.vision.emplace();
  spec.vision->tower.heads = 2;
  EXPECT_EQ(models::tensor_limit(spec)->ranks, 2);
  EXPECT_EQ(models::tensor_limit(spec)->shared, "2 heads of the image encoder");
  EXPECT_FALSE(models::tensor_limit({}));
}

TEST(RankLimits, OfExpertsAreTheExpertsOfALayer) {
  const json keys = {{"num_local_experts", 2}};
  EXPECT_EQ(rank_refusal("mixtral", keys, {.expert = 2}), "");
  EXPECT_EQ(rank_refusal("mixtral", keys, {.expert = 3}),
            "parallel.expert: 3 ranks for 2 experts; expected at most 2; lower parallel.expert");
  EXPECT_EQ(rank_refusal("llama", json::object(), {.expert = 2}),
            "parallel.expert: the value is 2, but the model has no experts; expected 1, or a model with experts; "
            "remove parallel.expert");
}

TEST(RankLimits, OfUnknownFamiliesAreNotKnown) {
  for (const json& keys : {json::object(), json(3), json{{"model_type", "own"}}, json{{"model_type", 3}}})
    EXPECT_EQ(rank_refusal("", keys, {.tensor = 64, .expert = 2}), "");
  EXPECT_EQ(rank_refusal("own", {{"num_attention_heads", 2}}, {.tensor = 3}), "");
}

}  // namespace
}  // namespace gantry::testing
