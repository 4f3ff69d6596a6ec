// Layers with several streams, with embeddings of their own and with keys that they share (Gemma 3n): every layout
// trains and generates like one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/models/decoder.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/model_family.h"
#include "gantry/models/shared_keys.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"
#include "model_case.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Layers 3, 4 and 5 use the keys of layers 1, 2 and 1.
ModelCase case_with_streams() {
  return {.family = "gemma3n_text",
          .layers = 6,
          .heads = 4,
          .key_heads = 2,
          .vocabulary = 53,
          .batches = {4, 3},
          .keys = R"({"head_dim": 6, "sliding_window": 3, "num_kv_shared_layers": 3, "laurel_rank": 3,
                      "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                                      "sliding_attention", "full_attention", "sliding_attention"],
                      "vocab_size_per_layer_input": 47, "hidden_size_per_layer_input": 5, "altup_num_inputs": 3,
                      "altup_active_idx": 1, "activation_sparsity_pattern": [0.5, 0, 0, 0.2, 0, 0],
                      "intermediate_size": [37, 31, 37, 29, 37, 37]})"};
}

TEST(Streams, TrainLikeOneRankOverTensorRanksAndStages) {
  const int three = 3;
  expect_layouts_equal(
      case_with_streams(),
      {{.layout = {.tensor = 2}, .recompute = "full"},
       {.layout = {.pipeline = 2}, .microbatches = 2},
       {.layout = {.pipeline = three, .tensor = 2}, .schedule = "zb_h1", .microbatches = 2, .sequence_parallel = true},
       {.layout = {.pipeline = 2}, .schedule = "interleaved_1f1b", .microbatches = 2, .chunks = 3, .recompute = "full"},
       {.layout = {.pipeline = 2, .tensor = three},
        .microbatches = 2,
        .recompute = "parts",
        .vocabulary = "pipeline"}});
}

TEST(Streams, TrainLikeOneRankOverReplicasAndPartsOfSequences) {
  expect_layouts_equal(case_with_streams(),
                       {{.layout = {.data = 2}, .zero = 3},
                        {.layout = {.data = 2}, .recompute = "full", .zero = 3},
                        {.layout = {.pipeline = 2, .data = 2}, .microbatches = 2, .recompute = "selective", .zero = 3},
                        {.layout = {.context = 2}},
                        {.layout = {.tensor = 2, .context = 2}, .sequence_parallel = true, .context_method = "ring"}});
}

TEST(Streams, PackedAndPaddedSamples) {
  ModelCase what = case_with_streams();
  const std::vector<Parallelism> layouts = {
      {.layout = {.pipeline = 2, .tensor = 2}, .microbatches = 2, .sequence_parallel = true},
      {.layout = {.data = 2, .context = 2}, .zero = 2}};
  what.packed = true;
  what.key_heads = 1;  // which tensor ranks share
  expect_layouts_equal(what, layouts);
  what.packed = false;
  what.padded = true;
  what.tied = false;
  expect_layouts_equal(what, {layouts.front()});
}

std::vector<GenerationJob> continued_texts(bool is_cached) {
  const std::vector<TokenIds> prompts = {{5, 40, 17, 3, 21, 9, 33}, {11, 2}, {30, 31, 32, 33}};
  return {{.name = "greedy", .prompts = prompts, .options = {.max_new_tokens = 9, .use_cache = is_cached}},
          {.name = "beams",
           .prompts = prompts,
           .options = {.max_new_tokens = 6, .num_beams = 2, .num_return_sequences = 2, .use_cache = is_cached}}};
}

// Stages that begin between layers with shared keys have caches of them.
TEST(Streams, CachedTextsInEveryLayoutAreThoseOfFullForwards) {
  const std::string folder = golden_model("families/gemma3n_text");
  const auto full = generate_in({}, folder, continued_texts(/*is_cached=*/false));
  ASSERT_EQ(full.size(), 2u);
  const int six = 6;
  for (const Layout& layout :
       {Layout{}, Layout{.tensor = 2}, Layout{.pipeline = 2, .context = 2}, Layout{.pipeline = six}}) {
    const auto cached = generate_in(layout, folder, continued_texts(/*is_cached=*/true));
    ASSERT_EQ(cached.size(), full.size());
    for (std::size_t job = 0; job < full.size(); ++job)
      EXPECT_EQ(tokens_of(cached[job]), tokens_of(full[job])) << describe(layout);
  }
}

TEST(SharedKeys, StagesPassThemOnWhileALaterLayerUsesThem) {
  const ModelCase what = case_with_streams();
  const auto spec = models::decoder_spec("gemma3n_text", json::parse(config_keys(what)));
  EXPECT_THAT(models::users_of_keys(spec, 5), ElementsAre(1, 3, 5));
  EXPECT_THAT(models::users_of_keys(spec, 0), ElementsAre());
  EXPECT_THAT(models::entries_of_earlier_layers(spec, 1), ElementsAre());
  EXPECT_THAT(models::entries_of_earlier_layers(spec, 2), ElementsAre("keys.1", "values.1"));
  EXPECT_THAT(models::entries_of_earlier_layers(spec, 5), ElementsAre("keys.1", "values.1"));
  EXPECT_THAT(models::entries_of_earlier_layers(spec, 4), ElementsAre("keys.2", "values.2", "keys.1", "values.1"));
  EXPECT_EQ(models::holder_of_cache({1, 3, 5}, {0, 6}), 1);
  EXPECT_EQ(models::holder_of_cache({1, 3, 5}, {2, 5}), 3);
}

std::string refused_keys(const json& changed) {
  json keys = json::parse(config_keys(case_with_streams()));
  keys.update(changed);
  return thrown_by([&] { models::decoder_spec("gemma3n_text", keys); });
}

TEST(Streams, RefuseKeysThatContradictEachOther) {
  EXPECT_THAT(refused_keys({{"altup_active_idx", 3}}), HasSubstr("a number below altup_num_inputs"));
  EXPECT_THAT(refused_keys({{"num_kv_shared_layers", 4}}), HasSubstr("num_kv_shared_layers: the value is 4"));
  EXPECT_THAT(refused_keys({{"intermediate_size", {37, 31}}}), HasSubstr("a list of 6 numbers"));
  EXPECT_THAT(refused_keys({{"activation_sparsity_pattern", 0.5}}), HasSubstr("a list of 6 numbers"));
  EXPECT_THAT(refused_keys({{"activation_sparsity_pattern", {0.5, 0, 0, 1, 0, 0}}}),
              HasSubstr("activation_sparsity_pattern"));
}

TEST(Streams, TextDecodersRefuseTokensAndEntriesOfOtherParts) {
  const json keys = json::parse(read_file(golden_model("families/gemma3n_mm") + "/config.json"));
  const auto model = std::dynamic_pointer_cast<models::DecoderImpl>(models::families().at("gemma3n").build(keys));
  const auto refusal = [&](const TensorDict& batch) { return thrown_by([&] { model->forward(batch); }); };
  const torch::Tensor ids = torch::arange(58, 64).view({1, 6});
  EXPECT_THAT(refusal({{"input_ids", ids}}), HasSubstr("input_ids: token 63 stands for an image or a sound"));
  EXPECT_THAT(refusal({{"input_ids", ids - 10}, {"input_features", torch::zeros({1, 4, 4})}}),
              HasSubstr("input_features: the model gemma3n reads text only"));
  EXPECT_EQ(refusal({{"input_ids", ids - 10}}), "no error");
}

}  // namespace
}  // namespace gantry::testing
