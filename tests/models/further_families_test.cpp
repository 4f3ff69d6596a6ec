// Families with features of their own: chunked attention in generation, and values of keys that are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/model_flops.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kChunkedCase = golden_model("families/llama4_text");  // chunks of 8 tokens

std::vector<TokenIds> prompts_of_chunks() {
  const torch::Tensor ids = read_safetensors(kChunkedCase + "/inputs.safetensors").at("input_ids").to(torch::kInt64);
  std::vector<TokenIds> prompts;
  for (const std::int64_t length : {3, 17, 8, 9}) {
    const torch::Tensor row = ids[static_cast<std::int64_t>(prompts.size())].narrow(0, 0, length).contiguous();
    prompts.emplace_back(row.data_ptr<std::int64_t>(), row.data_ptr<std::int64_t>() + length);
  }
  return prompts;
}

// Prompts of several lengths are padded on the left. A chunk begins at each text's own first token.
TEST(ChunkedAttention, CachedTextsInEveryLayoutAreThoseOfFullForwards) {
  const auto jobs = [](bool is_cached) {
    return std::vector<GenerationJob>{
        {.name = "greedy", .prompts = prompts_of_chunks(), .options = {.max_new_tokens = 10, .use_cache = is_cached}},
        {.name = "beams",
         .prompts = prompts_of_chunks(),
         .options = {.max_new_tokens = 6, .num_beams = 2, .use_cache = is_cached}}};
  };
  const auto full = generate_in(Layout{}, kChunkedCase, jobs(false));
  for (const Layout& layout :
       {Layout{}, Layout{.tensor = 2, .context = 2}, Layout{.context = 3}, Layout{.pipeline = 2, .tensor = 2}}) {
    const auto cached = generate_in(layout, kChunkedCase, jobs(true));
    for (std::size_t job = 0; job < cached.size(); ++job)
      EXPECT_EQ(tokens_of(cached[job]), tokens_of(full[job])) << describe(layout) << " job " << job;
  }
}

models::Decoder loaded_chunks() {
  const json keys = json::parse(read_file(kChunkedCase + "/config.json"));
  auto model = std::dynamic_pointer_cast<models::DecoderImpl>(models::families().at("llama4_text").build(keys));
  model->to(torch::kFloat64);
  model->eval();
  return models::Decoder(model);
}

TEST(ChunkedAttention, ChunksOfDocumentsBeginWithTheDocument) {
  models::Decoder model = loaded_chunks();
  const torch::NoGradGuard no_grad;
  const torch::Tensor ids = torch::arange(30).view({1, 30});
  const std::int64_t lengths[] = {11, 19};
  const torch::Tensor documents =
      torch::cat({torch::zeros({1, 11}, torch::kInt64), torch::ones({1, 19}, torch::kInt64)}, 1);
  const torch::Tensor packed = model->forward({{"input_ids", ids}, {"document_ids", documents}}).at("logits");
  std::int64_t first = 0;
  for (const std::int64_t length : lengths) {
    const torch::Tensor alone = model->forward({{"input_ids", ids.narrow(1, first, length)}}).at("logits");
    EXPECT_LE((packed.narrow(1, first, length) - alone).abs().max().item<double>(), 1e-10) << first;
    first += length;
  }
}

// Token i of a text in chunks of 8 sees i % 8 + 1 keys.
TEST(ChunkedAttention, FlopsCountTheKeysOfAChunk) {
  models::AttentionSpec attention;
  attention.chunk = 8;
  EXPECT_DOUBLE_EQ(models::keys_met(attention, 20, true), (36.0 + 36 + 10) / 20);
  EXPECT_DOUBLE_EQ(models::keys_met(attention, 20, false), 8);
  EXPECT_DOUBLE_EQ(models::keys_met(attention, 5, true), 3);
}

TEST(FurtherFamilies, UnsupportedValuesAreRefusedByName) {
  const auto refused = [](const char* family, const json& keys) {
    return thrown_by([&] { models::decoder_spec(family, keys); });
  };
  EXPECT_THAT(refused("nemotron_h", {{"hybrid_override_pattern", "MX"}}), HasSubstr("letters M, E, * and -"));
  EXPECT_THAT(refused("nemotron_h", {{"num_hidden_layers", 3}}), HasSubstr("4, the number of layers"));
  EXPECT_THAT(refused("nemotron_h", {{"moe_latent_size", 128}}), HasSubstr("moe_latent_size"));
  EXPECT_THAT(refused("nemotron_h", {{"n_groups", 5}}), HasSubstr("a divisor of mamba_num_heads 128"));
  EXPECT_THAT(
      refused("llama4_text",
              {{"num_hidden_layers", 1}, {"layer_types", {"chunked_attention"}}, {"attention_chunk_size", nullptr}}),
      HasSubstr("attention_chunk_size"));
  EXPECT_THAT(refused("llama4_text", {{"no_rope_layers", {1, 0}}}), HasSubstr("0 or 1 for each layer"));
  EXPECT_THAT(refused("llama4_text", {{"moe_layers", {-1}}}), HasSubstr("a list of layers, from 0"));
  EXPECT_THAT(refused("ernie4_5_moe", {{"use_bias", true}}), HasSubstr("use_bias"));
  EXPECT_THAT(refused("recurrent_gemma", {{"lru_width", 2562}}), HasSubstr("lru_width"));
  EXPECT_THAT(refused("recurrent_gemma", {{"block_types", json::array()}}), HasSubstr("at least one word"));
  EXPECT_THAT(refused("bamba", {{"attn_layer_indices", {32}}}), HasSubstr("layers from 0 to 31"));
  EXPECT_THAT(refused("bamba", {{"z_loss_coefficient", 0.1}}), HasSubstr("z_loss_coefficient"));
  EXPECT_THAT(refused("apertus", {{"hidden_act", "silu"}}), HasSubstr("hidden_act"));
}

}  // namespace
}  // namespace gantry::testing
