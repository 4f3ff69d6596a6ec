// Outlines of custom models: the parameters that the planner counts are those that ranks hold.
#include "gantry/policies/model_outline.h"

#include <gmock/gmock.h>

#include "gantry/nn/embedding.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/norms.h"
#include "gantry/planner/parameters.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kOutlineVocabulary = 10, kOutlineWidth = 8;

struct OutlineBlockImpl : torch::nn::Module {
  explicit OutlineBlockImpl(std::int64_t inner) {
    norm = register_module("norm", nn::LayerNorm(kOutlineWidth));
    up = register_module("up", nn::Linear(kOutlineWidth, inner));
    down = register_module("down", nn::Linear(inner, kOutlineWidth));
  }
  nn::LayerNorm norm{nullptr};
  nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(OutlineBlock);

struct OutlineModelImpl : torch::nn::Module {
  OutlineModelImpl() {
    table = register_module("table", nn::Embedding(kOutlineVocabulary, kOutlineWidth));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (const std::int64_t inner : {6, 6, 12}) blocks->push_back(OutlineBlock(inner));
    norm = register_module("norm", nn::LayerNorm(kOutlineWidth));
    head = register_module("head", nn::Linear(torch::nn::LinearOptions(kOutlineWidth, kOutlineVocabulary).bias(false)));
    head->tie_weight(table->weight);
  }
  nn::Embedding table{nullptr};
  torch::nn::ModuleList blocks;
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(OutlineModel);

struct OutlinePolicy final : PolicyFor<OutlineModelImpl> {
  explicit OutlinePolicy(StageLayout stages) : stages(std::move(stages)) {}
  std::string name() const override { return "OutlinePolicy"; }
  ModelSplit split(const OutlineModelImpl&) const override {
    return {.shards = {{"table", Vocab{}},
                       {"blocks.*.up", Column{.unit = 2}},
                       {"blocks.*.down", Row{.unit = 2}},
                       {"head", Column{}}},
            .stages = stages};
  }
  TensorDict forward(OutlineModelImpl&, const StageContext&, TensorDict) const override { return {}; }
  StageLayout stages;
};

models::ModelOutline outline(const StageLayout& stages) {
  const DeferredInit deferred;
  OutlineModel model;
  return outline_of(*model, OutlinePolicy(stages));
}

TEST(ModelOutline, HasTheLayersAndShapesOfTheModel) {
  const auto found = outline({.first = {"table"}, .repeated = "blocks", .last = {"norm", "head"}});
  ASSERT_TRUE(found.spec) << found.without_spec;
  const models::DecoderSpec& spec = *found.spec;
  EXPECT_EQ(spec.vocabulary, kOutlineVocabulary);
  EXPECT_EQ(spec.hidden, kOutlineWidth);
  EXPECT_TRUE(spec.tied);
  ASSERT_EQ(spec.layers.size(), 3U);
  EXPECT_TRUE(spec.layers[0] == spec.layers[1]);
  EXPECT_FALSE(spec.layers[1] == spec.layers[2]);
  EXPECT_THAT(found.work.layers, ::testing::ElementsAre(96, 96, 192));
}

TEST(ModelOutline, CountsTheParametersOfARank) {
  const auto found = outline({.first = {"table"}, .repeated = "blocks", .last = {"norm", "head"}});
  // norm, up with its bias, down, and the bias of down, which every rank has.
  const auto block = [](std::int64_t inner) { return 16.0 + 8.0 * inner + inner + 8.0 * inner + 8; };
  const auto full = planner::held_parameters(*found.spec, /*tensor=*/1, /*expert=*/1);
  EXPECT_EQ(full.layers.at(0).dense, block(6));
  EXPECT_EQ(full.layers.at(2).dense, block(12));
  EXPECT_EQ(full.first.dense, 80);
  EXPECT_EQ(full.last.dense, 16 + 80);
  // Six features in units of two over two ranks: the largest part has four.
  const auto half = planner::held_parameters(*found.spec, /*tensor=*/2, /*expert=*/1);
  EXPECT_EQ(half.layers.at(0).dense, block(4));
  EXPECT_EQ(half.layers.at(2).dense, block(6));
}

TEST(ModelOutline, NamesTheReasonWhyAModelHasNoSpec) {
  const auto no_table = outline({.first = {}, .repeated = "blocks", .last = {"norm", "head"}});
  EXPECT_FALSE(no_table.spec);
  EXPECT_EQ(no_table.without_spec, "its first stage has no embedding");
  const auto no_head = outline({.first = {"table"}, .repeated = "blocks", .last = {"norm"}});
  EXPECT_EQ(no_head.without_spec, "its last stage has no output layer");
}

}  // namespace
}  // namespace gantry
