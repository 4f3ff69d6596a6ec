// Sizes and work of described decoders, compared with published numbers and formulas; parameters of a rank.
#include "gantry/planner/parameters.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "gantry/core/slice.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/model_flops.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/operations.h"

namespace gantry::planner {
namespace {

using models::decoder_spec;
using models::DecoderSpec;
using nlohmann::json;

// The sums over the tensors of their files.
TEST(ModelSizes, ParametersOfPublishedModels) {
  EXPECT_EQ(parameter_count(decoder_spec("gpt2", json::object())), 124439808);
  EXPECT_EQ(parameter_count(decoder_spec("llama", json::object())), 6738415616);
  EXPECT_EQ(parameter_count(decoder_spec("mixtral", {{"num_key_value_heads", 8}})), 46702792704);
  EXPECT_EQ(
      parameter_count(decoder_spec(
          "llama",
          {{"hidden_size", 4096}, {"intermediate_size", 14336}, {"num_key_value_heads", 8}, {"vocab_size", 128256}})),
      8030261248);
  EXPECT_EQ(parameter_count(decoder_spec("qwen2", {{"hidden_size", 3584},
                                                   {"intermediate_size", 18944},
                                                   {"num_hidden_layers", 28},
                                                   {"num_attention_heads", 28},
                                                   {"num_key_value_heads", 4},
                                                   {"vocab_size", 152064}})),
            7615616512);
}

// P = 12 L h^2 (1 + 13 / (12 h) + (V + s) / (12 L h)), and a last norm of 2 h.
TEST(ModelSizes, ParametersByMegatronsFormula) {
  for (const auto& [h, L, a] : {std::tuple(2304, 24, 24), {12288, 96, 96}, {25600, 128, 160}}) {
    const DecoderSpec spec = decoder_spec(
        "gpt2", {{"n_embd", h}, {"n_layer", L}, {"n_head", a}, {"vocab_size", 51200}, {"n_positions", 2048}});
    const double hidden = h, layers = L;
    const double formula = 12 * layers * hidden * hidden + 13 * layers * hidden + (51200 + 2048) * hidden;
    EXPECT_DOUBLE_EQ(parameter_count(spec), formula + 2 * hidden);
  }
}

// 72 B s L h^2 (1 + s / (6 h) + V / (12 L h)).
TEST(ModelSizes, FlopsByMegatronsFormula) {
  const DecoderSpec spec = decoder_spec(
      "gpt2", {{"n_embd", 12288}, {"n_layer", 96}, {"n_head", 96}, {"vocab_size", 51200}, {"n_positions", 2048}});
  const double h = 12288, L = 96, s = 2048, V = 51200, B = 64;
  EXPECT_NEAR(model_flops(spec, 64, 2048) / (72 * B * s * L * h * h * (1 + s / (6 * h) + V / (12 * L * h))), 1, 1e-12);
}

TEST(ModelSizes, CausalityAndWindowsLeaveOutKeys) {
  models::AttentionSpec attention;
  EXPECT_EQ(keys_met(attention, 8, false), 8);
  EXPECT_EQ(keys_met(attention, 8, true), 4.5);
  attention.window = 3;
  EXPECT_EQ(keys_met(attention, 8, true), (1 + 2 + 3 * 6) / 8.0);
  attention.window = 100;
  EXPECT_EQ(keys_met(attention, 8, true), 4.5);
}

// A token is multiplied only with the experts that it uses.
TEST(ModelSizes, ExpertsCountByUse) {
  const DecoderSpec spec = decoder_spec("mixtral", {{"num_key_value_heads", 8}});
  const double attention = 4096.0 * 4096 * 2 + 2 * 4096.0 * 1024, router = 8 * 4096;
  EXPECT_DOUBLE_EQ(layer_weights(spec.layers.front(), spec.hidden), attention + router + 2 * 3 * 4096.0 * 14336);
}

double flops_of(const PartOperations& part) {
  double flops = 0;
  for (const Operation& operation : part.forward) flops += operation.flops;
  return flops;
}

// The operations of a layer have the flops of the layer's description.
TEST(ModelSizes, PlansCountTheFlopsOfTheDescription) {
  std::set<std::string> families;
  for (const auto& entry : std::filesystem::directory_iterator(GANTRY_SOURCE_DIR "/tests/golden/families")) {
    std::ifstream file(entry.path() / "config.json");
    const auto described = file ? models::described_decoder(json::parse(file)) : std::nullopt;
    if (!described) continue;
    SCOPED_TRACE(entry.path());
    constexpr std::int64_t kSequence = 24, kSamples = 3;
    const DecoderSpec& spec = *described;
    Workload workload{.model = spec, .sequence = kSequence, .batch = kSamples};
    workload.program.halves_causal = false;
    const Layout layout{.microbatch = kSamples};
    const double tokens = kSamples * kSequence;
    double layers = 0;
    for (const auto& layer : spec.layers) {
      const double expected =
          tokens * layer_flops(layer, spec.hidden, keys_met(layer.attention, kSequence, /*causal_half=*/false));
      EXPECT_NEAR(flops_of(layer_operations(workload, layer, layout)) / expected, 1, 1e-12);
      layers += expected;
    }
    const auto forward = forward_flops(spec, kSequence);
    EXPECT_NEAR(layers / tokens / (forward.weights + forward.attention), 1, 1e-12);
    EXPECT_NEAR((flops_of(embedding_operations(workload, layout)) + flops_of(head_operations(workload, layout))) /
                    tokens / forward.head,
                1, 1e-12);
    families.insert(spec.family);
  }
  EXPECT_GE(families.size(), 25u);
}

double held_in_all(const DecoderSpec& spec, int tensor, int expert) {
  const ModelParameters held = held_parameters(spec, tensor, expert);
  double sum = held.first.dense + held.last.dense - held.tied;
  for (const HeldParameters& layer : held.layers) sum += layer.dense + layer.experts;
  return sum;
}

// In every decoder family, a single rank holds all parameters; with two ranks, each holds half of the sharded
// parameters and all others.
TEST(RankParameters, OfEveryFamily) {
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GANTRY_SOURCE_DIR "/tests/golden/families")) {
    std::ifstream file(entry.path() / "config.json");
    if (!file) continue;
    const json keys = json::parse(file);
    const auto described = models::described_decoder(keys);
    if (!described) continue;  // not a decoder
    const DecoderSpec& spec = *described;
    const auto table = static_cast<double>(spec.vocabulary * models::embedding_columns(spec));
    EXPECT_DOUBLE_EQ(held_parameters(spec, 1, 1).tied, spec.tied ? table : 0) << entry.path();
    EXPECT_DOUBLE_EQ(held_in_all(spec, 1, 1), parameter_count(spec)) << entry.path();
    EXPECT_LT(held_in_all(spec, 2, 1), 0.75 * parameter_count(spec)) << entry.path();
    EXPECT_GE(2 * held_in_all(spec, 2, 1), parameter_count(spec)) << entry.path();
    ++families;
  }
  EXPECT_GE(families, 25);
}

TEST(RankParameters, KeyHeadsThatRanksShareAreHeldByEach) {
  const DecoderSpec spec = decoder_spec("llama", {{"num_key_value_heads", 2}, {"num_hidden_layers", 1}});
  const double hidden = 4096, head = 128, inner = 11008;
  const ModelParameters held = held_parameters(spec, 4, 1);
  EXPECT_DOUBLE_EQ(held.layers.front().dense,
                   2 * hidden * (hidden / 4) + 2 * hidden * head + 3 * hidden * inner / 4 + 2 * hidden);
}

// 6 query heads over 4 ranks: the second rank has the last head of the first group and the first head of the second.
TEST(RankParameters, AGroupOnTwoRanksHasItsKeyHeadOnBoth) {
  const DecoderSpec spec = decoder_spec("llama", {{"hidden_size", 48},
                                                  {"intermediate_size", 64},
                                                  {"num_attention_heads", 6},
                                                  {"num_key_value_heads", 2},
                                                  {"num_hidden_layers", 1}});
  const double hidden = 48, head = 8, inner = 64;
  EXPECT_DOUBLE_EQ(held_parameters(spec, 4, 1).layers.front().dense,
                   2 * hidden * 2 * head + 2 * hidden * 2 * head + 3 * hidden * inner / 4 + 2 * hidden);
}

TEST(RankParameters, TheOutputBiasOfExpertsIsOnEveryTensorRank) {
  const DecoderSpec spec = decoder_spec("gpt_oss", {{"num_hidden_layers", 1}});
  const auto& experts = *spec.layers.front().experts;
  const auto count = static_cast<double>(experts.count), hidden = static_cast<double>(spec.hidden),
             width = static_cast<double>(experts.width);
  EXPECT_DOUBLE_EQ(held_parameters(spec, 2, 1).layers.front().experts,
                   count * (3 * hidden * width / 2 + width + hidden));
}

TEST(RankParameters, ExpertsAreOverTheirOwnAxis) {
  const DecoderSpec spec = decoder_spec("mixtral", {{"num_key_value_heads", 8}, {"num_hidden_layers", 1}});
  const double all = 8 * 3 * 4096.0 * 14336;
  EXPECT_DOUBLE_EQ(held_parameters(spec, 1, 4).layers.front().experts, all / 4);
  EXPECT_DOUBLE_EQ(held_parameters(spec, 1, 3).layers.front().experts, all * 3 / 8);  // the largest part
}

}  // namespace
}  // namespace gantry::planner
