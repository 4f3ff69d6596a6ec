// Estimates of models whose layers have mixers other than attention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/mixers/mixer_kind.h"
#include "gantry/planner/estimate.h"
#include "gantry/planner/layout.h"
#include "gantry/planner/operations.h"
#include "gantry/planner/parameters.h"

namespace gantry::planner {
namespace {

using ::testing::HasSubstr;

// Two layers with short convolutions and two with attention; 4 heads and 64 channels.
Workload small_lfm2() {
  Workload workload;
  workload.model = models::decoder_spec("lfm2", {{"vocab_size", 256},
                                                 {"hidden_size", 64},
                                                 {"intermediate_size", 176},
                                                 {"num_hidden_layers", 4},
                                                 {"num_attention_heads", 4},
                                                 {"num_key_value_heads", 2},
                                                 {"full_attn_idxs", {1, 3}}});
  workload.sequence = 32;
  workload.batch = 8;
  workload.precision = "bfloat16";
  return workload;
}

TEST(MixerLayers, ParametersOfARank) {
  const Workload workload = small_lfm2();
  const double mlp = 3 * 64 * 256 + 2 * 64;  // and two norms
  EXPECT_DOUBLE_EQ(held_parameters(workload.model, 1, 1).layers[0].dense, mlp + 4 * 64 * 64 + 3 * 64);
  EXPECT_DOUBLE_EQ(held_parameters(workload.model, 2, 1).layers[0].dense, mlp / 2 + 64 + (4 * 64 * 64 + 3 * 64) / 2);
  EXPECT_DOUBLE_EQ(held_parameters(workload.model, 1, 1).layers[1].dense, mlp + 3 * 64 * 64 + 2 * 16);
}

// The products of in_proj and out_proj, divided by tensor ranks; their sums over tp are two, as attention's.
TEST(MixerLayers, OperationsOfShortConvolutions) {
  const Workload workload = small_lfm2();
  const auto flops = [&](std::size_t layer, const Layout& layout) {
    double sum = 0;
    for (const Operation& operation : layer_operations(workload, workload.model.layers[layer], layout).forward)
      sum += operation.flops;
    return sum;
  };
  const double mlp = 2.0 * 32 * 3 * 64 * 256;
  EXPECT_DOUBLE_EQ(flops(0, {}), mlp + 2.0 * 32 * (4 * 64 * 64 + 3 * 64));
  EXPECT_DOUBLE_EQ(flops(0, {.tensor = 2}), flops(0, {}) / 2);
  const auto reductions = [&](std::size_t layer) {
    const auto part = layer_operations(workload, workload.model.layers[layer], {.tensor = 2});
    return std::count_if(part.forward.begin(), part.forward.end(),
                         [](const Operation& one) { return one.kind == Operation::Kind::kReduce; });
  };
  EXPECT_EQ(reductions(0), reductions(1));
  EXPECT_GT(layer_operations(workload, workload.model.layers[0], {}).kept,
            layer_operations(workload, workload.model.layers[0], {.tensor = 2}).kept);
}

// Two context ranks have half of the work, and exchange the input and the output of the convolution.
TEST(MixerLayers, ContextRanksExchangeChannels) {
  const Workload workload = small_lfm2();
  const auto part = [&](const Layout& layout) { return layer_operations(workload, workload.model.layers[0], layout); };
  const auto exchanged = [](const std::vector<Operation>& operations) {
    std::vector<double> bytes;
    for (const Operation& one : operations)
      if (one.kind == Operation::Kind::kHeads) bytes.push_back(one.bytes);
    return bytes;
  };
  EXPECT_TRUE(exchanged(part({}).forward).empty());
  const double channels = 2.0 * 64 * 32 / 2;  // bytes of the tokens of a rank
  const auto shared = part({.context = 2}), sharded = part({.tensor = 2, .context = 2});
  EXPECT_EQ(exchanged(shared.forward), (std::vector<double>{channels, channels}));
  EXPECT_EQ(exchanged(shared.input_gradient), exchanged(shared.forward));
  EXPECT_EQ(exchanged(sharded.forward), (std::vector<double>{channels / 2, channels / 2}));
  EXPECT_DOUBLE_EQ(shared.kept, part({}).kept / 2);
}

TEST(MixerLayers, SharedBlocksAreSentToEachReader) {
  const models::MixerWork work{.exchanged = 12, .shared_blocks = 2, .shared_size = 5};
  EXPECT_DOUBLE_EQ(work.exchanged_of(1, 2), 12 + 2 * 5);  // each rank reads one block
  EXPECT_DOUBLE_EQ(work.exchanged_of(1, 4), 12 + 4 * 5);
  EXPECT_DOUBLE_EQ(work.exchanged_of(2, 4), 6 + 4 * 5);
}

TEST(MixerLayers, LayoutsThatTheyDoNotSupport) {
  const auto objection_of = [](const Layout& layout, int ranks) {
    return objection(small_lfm2(), layout, part_of(load_cluster("h100_80g"), ranks)).value_or("none");
  };
  EXPECT_EQ(objection_of({.tensor = 4}, 4), "none");
  EXPECT_EQ(objection_of({.tensor = 2, .context = 4}, 8), "none");
  Workload only = small_lfm2();
  only.model.layers = {only.model.layers[0]};
  EXPECT_EQ(objection(only, {.tensor = 8}, part_of(load_cluster("h100_80g"), 8)).value_or("none"), "none");
  only.model = models::decoder_spec("lfm2", {{"hidden_size", 4},
                                             {"num_attention_heads", 2},
                                             {"num_key_value_heads", 1},
                                             {"num_hidden_layers", 1},
                                             {"layer_types", {"conv"}}});
  EXPECT_THAT(objection(only, {.tensor = 8}, part_of(load_cluster("h100_80g"), 8)).value_or("none"),
              HasSubstr("tensor 8 is above 4"));
  EXPECT_THAT(
      objection(only, {.tensor = 2, .context = 4}, part_of(load_cluster("h100_80g"), 8)).value_or("none"),
      HasSubstr("context 4 is above 2, the most ranks that share the short convolutions of one of 2 tensor ranks"));
}

}  // namespace
}  // namespace gantry::planner
