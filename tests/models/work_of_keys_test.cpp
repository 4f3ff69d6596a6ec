#include "gantry/models/described/work_of_keys.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/models/described/decoder_spec.h"

namespace gantry::testing {
namespace {

using models::layer_work_in;
using nlohmann::json;

TEST(WorkOfKeys, IsTheMatricesThatTheKeysState) {
  // Llama 3 8B: 32 heads of 128, 8 key heads, a gated feed-forward of 14336.
  const LayerWork llama = layer_work_in({{"model_type", "llama"},
                                         {"hidden_size", 4096},
                                         {"num_hidden_layers", 2},
                                         {"num_attention_heads", 32},
                                         {"num_key_value_heads", 8},
                                         {"intermediate_size", 14336},
                                         {"rms_norm_eps", 1e-5},
                                         {"vocab_size", 128256}},
                                        2);
  EXPECT_NEAR(llama.last / llama.layers[1], 128256.0 / (2.5 * 4096 + 3 * 14336), 1e-12);
  json bert = {{"hidden_size", 768}, {"vocab_size", 30522}};
  EXPECT_EQ(layer_work_in(bert, 1, "bert").last, 768.0 * (30522 + 768));
  bert["architectures"] = {"BertForQuestionAnswering"};
  EXPECT_EQ(layer_work_in(bert, 1, "bert").last, 768.0 * 2);
}

TEST(WorkOfKeys, OfUnknownFamiliesIsEqual) {
  for (const json& keys : {json::object(), json(3), json{{"n_embd", "x"}}, json{{"model_type", "own"}}}) {
    EXPECT_EQ(layer_work_in(keys, 3).last, 0);
    EXPECT_EQ(layer_work_in(keys, 3).layers, (std::vector<double>{1, 1, 1}));
  }
  EXPECT_THROW(layer_work_in({{"n_embd", "x"}}, 3, "gpt2"), ConfigError);
}

// Press et al., arXiv 2108.12409: powers of two, and every other slope of the next power for the rest.
TEST(AlibiSlopes, OfHeadsThatNoPowerOfTwoCounts) {
  EXPECT_EQ(models::alibi_slopes(1), (std::vector<double>{1.0 / 256}));
  EXPECT_EQ(models::alibi_slopes(4), (std::vector<double>{1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256}));
  EXPECT_EQ(models::alibi_slopes(6), (std::vector<double>{1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256, 1.0 / 2, 1.0 / 8}));
}

}  // namespace
}  // namespace gantry::testing
