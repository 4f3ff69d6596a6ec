// Policies without split(): the functions that ModelSplit has replaced are collected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/models/decoder.h"
#include "gantry/policies/policy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;

struct EarlierModel : torch::nn::Module {
  EarlierModel() {
    register_module("table", torch::nn::Embedding(5, 4));
    torch::nn::ModuleList layers;
    for (int i = 0; i < 2; ++i) layers->push_back(torch::nn::Linear(4, 4));
    register_module("layers", layers);
    register_module("head", torch::nn::Linear(4, 5));
  }
  TensorDict stage_forward(const StageContext&, TensorDict in) { return in; }
};

class EarlierPolicy : public PolicyFor<EarlierModel> {
 public:
  std::string name() const override { return "EarlierPolicy"; }
  ShardPlan shard_plan(const EarlierModel&) const override { return {{"head", Column{}}}; }
  StageLayout stage_layout(const EarlierModel&) const override { return {{"table"}, "layers", {"head"}}; }
};

class FullEarlierPolicy final : public EarlierPolicy, public SharesStreams {
 public:
  LayerWork layer_work(const EarlierModel& model) const override {
    LayerWork work = PolicyFor<EarlierModel>::layer_work(model);
    work.first = 3;
    return work;
  }
  std::vector<SplitOutput> split_outputs(const EarlierModel&) const override { return {{"logits", "head"}}; }
  Continuation continuation(const EarlierModel&) const override { return {.positions = 9}; }
  std::string joint_loss(const EarlierModel&) const override { return "a.key"; }
  std::optional<AttentionHeads> context_heads(const EarlierModel&) const override { return AttentionHeads{6, 2}; }
  std::optional<VocabularyModules> vocabulary(const EarlierModel&) const override {
    return VocabularyModules{.embedding = "table", .head = "head"};
  }
  std::int64_t tokens_per_sample(const TensorDict&) const override { return 7; }
  std::vector<std::string> entries_between() const override { return {"mask"}; }
  std::vector<TokenStream> token_streams(const torch::nn::Module&, const TensorDict& batch) const override {
    return {{.tokens = tokens_per_sample(batch), .entries = {"mask"}}};
  }
  TensorDict completed(const torch::nn::Module&, TensorDict batch) const override {
    batch.set("added", torch::ones(1));
    return batch;
  }
  bool gathers_outputs(const torch::nn::Module&) const override { return true; }
};

TEST(EarlierSplit, TwoFunctionsAreEnough) {
  const EarlierPolicy policy;
  const EarlierModel model;
  const ModelSplit split = static_cast<const Policy&>(policy).split(model);
  ASSERT_EQ(split.shards.size(), 1);
  EXPECT_EQ(split.shards.front().pattern, "head");
  EXPECT_EQ(layer_count(policy, model), 2);
  EXPECT_THAT(policy.held_layers(model, 1, 2, {1, 2}), ElementsAre("layers.1", "head"));
  EXPECT_THAT(work_of(split, model).layers, ElementsAre(16, 16));
  EXPECT_EQ(work_of(split, model).last, 20);
  EXPECT_FALSE(split.context.has_value());
  EXPECT_THAT(split.batch.between, ElementsAre("*"));
  EXPECT_EQ(split.batch.tokens_of({{"input_ids", torch::zeros({2, 3}, torch::kInt64)}}), 3);
}

TEST(EarlierSplit, EveryFunctionHasAField) {
  const FullEarlierPolicy policy;
  const EarlierModel model;
  const ModelSplit split = static_cast<const Policy&>(policy).split(model);
  EXPECT_EQ(split.work->first, 3);
  EXPECT_THAT(split.work->layers, ElementsAre(16, 16));
  EXPECT_EQ(split.split_outputs.front().module, "head");
  EXPECT_EQ(split.continuation.positions, 9);
  EXPECT_EQ(split.joint_loss, "a.key");
  EXPECT_EQ(split.vocabulary->embedding, "table");
  EXPECT_EQ(split.batch.tokens_of({}), 7);
  EXPECT_THAT(split.batch.between, ElementsAre("mask"));
  ASSERT_TRUE(split.context.has_value());
  EXPECT_EQ(split.context->heads, (AttentionHeads{6, 2}));
  EXPECT_TRUE(split.context->gathers_outputs);
  EXPECT_EQ(split.context->streams({}).front().tokens, 7);
  EXPECT_TRUE(split.context->complete({}).contains("added"));
}

// A policy for several classes has the same functions of torch::nn::Module.
class UntypedEarlierPolicy final : public Policy {
 public:
  std::string name() const override { return "UntypedEarlierPolicy"; }
  ShardPlan shard_plan(const torch::nn::Module&) const override { return {{"head", Column{}}}; }
  StageLayout stage_layout(const torch::nn::Module&) const override { return {{"table"}, "layers", {"head"}}; }
  TensorDict forward(torch::nn::Module&, const StageContext&, TensorDict input) const override { return input; }
};

TEST(EarlierSplit, PoliciesOfSeveralClassesHaveTheSameFunctions) {
  const ModelSplit split = UntypedEarlierPolicy().split(EarlierModel());
  EXPECT_EQ(split.shards.size(), 1);
  EXPECT_THAT(split.stages.last, ElementsAre("head"));
}

}  // namespace
}  // namespace gantry::testing
