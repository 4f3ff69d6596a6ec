// Rules of a plan for modules between the sharded ones, where activations are sequence shards. The models are
// a vision transformer with plain modules and own parameters before the scatter, and one whose stages add
// losses. Compared with one rank in float64.
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/conv.h>

#include "gantry/booster/gantry.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/prepare_input.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kWidth = 8, kTokens = 5;

template <class Model>
std::shared_ptr<Model> deferred() {
  const DeferredInit guard;
  auto model = std::make_shared<Model>();
  set_dtype(*model, torch::kFloat64);
  return model;
}

struct VisionBlock : torch::nn::Module {
  VisionBlock() {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    up = register_module("up", nn::Linear(kWidth, 21));
    down = register_module("down", nn::Linear(21, kWidth));
    drop = register_module("drop", nn::Dropout(0.1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor features = torch::gelu(up(norm(x)));
    return x + drop(down(features + features.mean(1, /*keepdim=*/true)));
  }
  torch::nn::LayerNorm norm{nullptr};
  nn::Linear up{nullptr}, down{nullptr};
  nn::Dropout drop{nullptr};
};

// Patches of an image after a class token: plain modules, and parameters of the root module.
struct Vision : torch::nn::Module {
  Vision() {
    class_token = register_parameter("class_token", torch::empty({1, 1, kWidth}));
    positions = register_parameter("positions", torch::empty({1, kTokens, kWidth}));
    torch::nn::init::normal_(class_token);
    torch::nn::init::normal_(positions);
    patch = register_module("patch", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, kWidth, 4).stride(4)));
    first_norm = register_module("first_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    scatter = register_module("scatter", nn::PrepareInput());
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 2; ++i) blocks->push_back(std::make_shared<VisionBlock>());
    last_norm = register_module("last_norm", nn::LayerNorm(kWidth));
    gather = register_module("gather", nn::PrepareInput());
    head = register_module("head", torch::nn::Linear(kWidth, 3));
  }
  torch::Tensor embed(const torch::Tensor& images) {
    const torch::Tensor patches = patch(images).flatten(2).transpose(1, 2);
    const torch::Tensor tokens = torch::cat({class_token.expand({images.size(0), 1, kWidth}), patches}, 1);
    return scatter(first_norm(tokens + positions));
  }
  torch::Tensor scores(const torch::Tensor& hidden) { return head(gather(last_norm(hidden)).select(1, 0)); }
  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor hidden = embed(images);
    for (int i = 0; i < 2; ++i) hidden = blocks->at<VisionBlock>(i).forward(hidden);
    return scores(hidden);
  }
  torch::Tensor class_token, positions;
  torch::nn::Conv2d patch{nullptr};
  torch::nn::LayerNorm first_norm{nullptr};
  nn::PrepareInput scatter{nullptr}, gather{nullptr};
  torch::nn::ModuleList blocks;
  nn::LayerNorm last_norm{nullptr};
  torch::nn::Linear head{nullptr};
};
struct UnstatedVision : Vision {};

ShardPlan split_of_vision() {
  return {{"blocks.*.up", Column{}},
          {"blocks.*.down", Row{}},
          {"scatter", PrepareInput{.from = Replicate{}, .to = Shard{1}}},
          {"gather", PrepareInput{.from = Shard{1}, .to = Replicate{}}}};
}

template <class Model>
class VisionPolicyOf : public PolicyFor<Model> {
 public:
  std::string name() const override { return "VisionPolicy"; }
  ModelSplit split(const Model&) const override {
    return {.shards = split_of_vision(),
            .stages = {.first = {"class_token", "positions", "patch", "first_norm", "scatter"},
                       .repeated = "blocks",
                       .last = {"last_norm", "gather", "head"}}};
  }
  TensorDict forward(Model& model, const StageContext& stage, TensorDict in) const override {
    torch::Tensor hidden = stage.is_first() ? model.embed(in.at("images")) : in.at("hidden");
    hidden = stage.run_layers(hidden, [&model](int layer, const torch::Tensor& x) {
      return model.blocks->template at<VisionBlock>(layer).forward(x);
    });
    if (!stage.is_last()) return {{"hidden", hidden}};
    return {{"scores", model.scores(hidden)}};
  }
};

class VisionPolicy final : public VisionPolicyOf<Vision> {
 public:
  ModelSplit split(const Vision& model) const override {
    ModelSplit split = VisionPolicyOf::split(model);
    for (const char* path : {"class_token", "positions", "patch", "first_norm", "head"})
      split.shards.push_back({path, FullSequence{}});
    split.shards.push_back({"blocks.*", SequenceParallel{}});  // a plain norm and a dropout
    split.shards.push_back({"last_norm", SequenceParallel{}});
    return split;
  }
};
class UnstatedVisionPolicy final : public VisionPolicyOf<UnstatedVision> {};

torch::Tensor images() { return torch::sin(torch::arange(4 * 3 * 8 * 8, torch::kFloat64) * 0.7).view({4, 3, 8, 8}); }
torch::Tensor classes() { return torch::tensor({0, 2, 1, 2}); }

struct Curve {
  int code = 0;
  std::vector<double> losses, norms;
};

// Runs three steps. Losses and norms must be the same on every rank.
Curve train(const Config& config, const std::function<std::shared_ptr<torch::nn::Module>()>& build,
            const Criterion& criterion, const Batch& batch) {
  Curve curve;
  std::mutex lock;
  curve.code = launch(config, [&](World& world) {
    Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
    auto model = build();
    auto optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.05);
    auto boosted = booster.boost(model, optimizer, criterion);
    Curve mine;
    for (int step = 0; step < 3; ++step) {
      mine.losses.push_back(*booster.execute_pipeline(batch, boosted, {.broadcast_loss = true}).loss);
      mine.norms.push_back(boosted.optimizer->grad_norm());
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    const std::lock_guard guard(lock);
    if (curve.losses.empty()) curve = mine;
    EXPECT_EQ(mine.losses, curve.losses) << world.describe();
  });
  return curve;
}

void expect_curve(const Curve& expected, const Curve& actual, const std::string& label) {
  ASSERT_EQ(actual.code, 0) << label;
  ASSERT_EQ(actual.losses.size(), 3u) << label;
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-10) << label << " loss of step " << step + 1;
    EXPECT_NEAR(actual.norms[step], expected.norms[step], 1e-10) << label << " norm of step " << step + 1;
  }
}

Config config_of(const std::string& policy, const std::string& parallel, const std::string& schedule = "{}") {
  return Config::parse("model: {policy: " + policy + "}\nparallel: " + parallel + "\nschedule: " + schedule +
                       "\ncomm: {timeout_seconds: 30, threads_per_rank: 1}\n");
}

template <class Model>
Curve vision_curve(const std::string& policy, const std::string& parallel, const std::string& schedule = "{}") {
  Batch batch = make_batch({{"images", images()}, {"classes", classes()}});
  batch.tokens_per_sample = kTokens;
  return train(
      config_of(policy, parallel, schedule), deferred<Model>,
      [](const TensorDict& outputs, const TensorDict& given) {
        return torch::nn::functional::cross_entropy(outputs.at("scores"), given.at("classes"));
      },
      batch);
}

void register_vision() {
  static const bool done = [] {
    policies().add<VisionPolicy>("vision");
    policies().add<UnstatedVisionPolicy>("unstated_vision");
    return true;
  }();
  static_cast<void>(done);
}

TEST(SequenceParallelPlan, PlainModulesAndAClassTokenBeforeTheScatterEqualOneRank) {
  register_vision();
  const Curve one = vision_curve<Vision>("vision", "{}");
  for (const char* parallel :
       {"{tensor: 2}", "{tensor: 2, sequence_parallel: true}", "{tensor: 3, sequence_parallel: true}",
        "{tensor: 2, pipeline: 2, sequence_parallel: true}"})
    for (const char* schedule : {"{microbatches: 2}", "{microbatches: 2, recompute: full}"})
      expect_curve(one, vision_curve<Vision>("vision", parallel, schedule), std::string(parallel) + schedule);
}

TEST(SequenceParallelPlan, WhatNoRuleSpeaksForIsRefusedWithTheRuleToWrite) {
  register_vision();
  // Full activations need no rule.
  EXPECT_EQ(vision_curve<UnstatedVision>("unstated_vision", "{tensor: 2}").code, 0);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(vision_curve<UnstatedVision>("unstated_vision", "{tensor: 2, sequence_parallel: true}").code, 3);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("no rule covers these modules and parameters: class_token, positions, patch, first_norm, "
                        "blocks.*.norm, last_norm and 2 more; expected SequenceParallel{} for"));
}

// The same model boosted by initialize(), in a plain loop: every gradient equals the dense model's.
TEST(SequenceParallelPlan, InitializeSumsWhatIsStatedAndRefusesTheRest) {
  register_vision();
  const ScratchFolder scratch;
  auto dense = deferred<Vision>();
  materialize(*dense, 1);
  dense->eval();
  dense->forward(images()).square().sum().backward();
  for (const int ranks : {2, 3}) {
    const std::string path =
        scratch.write("gantry.yaml", "parallel: {tensor: " + std::to_string(ranks) + ", sequence_parallel: true}\n");
    run_ranks(ranks, [&](World&, ProcessGroupMesh&) {
      auto model = deferred<Vision>();
      const auto made = initialize(*model, path);
      model->eval();
      model->forward(images()).square().sum().backward();
      const auto expected = dense->named_parameters();
      for (const auto& placement : made.boosted.model->stage_module().all_placements) {
        if (placement.along("tp").sharded()) continue;
        const torch::Tensor gradient = model->named_parameters()[placement.name].grad();
        EXPECT_LE((gradient - expected[placement.name].grad()).abs().max().item<double>(), 1e-10) << placement.name;
      }
      auto unstated = deferred<UnstatedVision>();
      EXPECT_THROW(initialize(*unstated, path), ConfigError);
    });
  }
}

struct PlainNormed : torch::nn::Module {
  PlainNormed() {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
    up = register_module("up", nn::Linear(6, 10));
    down = register_module("down", nn::Linear(10, 6));
    drop = register_module("drop", nn::Dropout(0.0));
  }
  torch::Tensor forward(const torch::Tensor& x) { return drop(down(torch::relu(up(norm(x))))); }
  torch::nn::LayerNorm norm{nullptr};
  nn::Linear up{nullptr}, down{nullptr};
  nn::Dropout drop{nullptr};
};

TEST(SequenceParallelPlan, ParallelizeModuleSumsAPlainNormWhereItIsStated) {
  const ShardPlan split = {{"up", Column{.input = Shard{0}}}, {"down", Row{.output = Shard{0}}}};
  run_ranks(3, [&](World&, ProcessGroupMesh& mesh) {
    const auto refused = [&](torch::nn::Module& model, const ShardPlan& plan, const std::string& said) {
      try {
        parallelize_module(model, mesh["tp"], plan);
        ADD_FAILURE() << said;
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr(said));
      }
    };
    auto untouched = deferred<PlainNormed>();
    refused(*untouched, split, "no rule covers these modules and parameters: norm, drop; expected SequenceParallel{}");
    EXPECT_EQ(untouched->up->weight.size(0), 10) << "refused before anything is split";
    ShardPlan plan = split;
    plan.push_back({"drop", SequenceParallel{.dim = 0}});
    plan.push_back({"norm.weight", Column{}});
    refused(*untouched, plan, "norm.weight: a parameter cannot be sharded as Column");
    plan.back() = {"up.bias", FullSequence{}};
    refused(*untouched, plan, "name 'up' instead");
    plan.back() = {"norm", SequenceParallel{.dim = 0}};

    auto model = deferred<PlainNormed>(), dense = deferred<PlainNormed>();
    parallelize_module(*model, mesh["tp"], plan);
    materialize(*model, 1);
    materialize(*dense, 1);
    const torch::Tensor rows = torch::sin(torch::arange(42, torch::kFloat64)).view({7, 6});
    const auto sizes = nn::partition_sizes(7, mesh["tp"]);
    std::int64_t begin = 0;
    for (int rank = 0; rank < mesh["tp"].rank(); ++rank) begin += sizes[rank];
    for (int step = 0; step < 2; ++step) {  // gradients accumulate
      model->forward(rows.narrow(0, begin, sizes[mesh["tp"].rank()])).square().sum().backward();
      dense->forward(rows).square().sum().backward();
    }
    for (const char* name : {"norm.weight", "norm.bias", "down.bias"}) {
      const torch::Tensor difference = model->named_parameters()[name].grad() - dense->named_parameters()[name].grad();
      EXPECT_LE(difference.abs().max().item<double>(), 1e-10) << name;
    }
    refused(*model, {{"norm", SequenceParallel{.dim = 0}}}, "its gradient is already reduced by another plan");
  });
}

// Layers that add a loss each, and one loss over the full sequence at the end.
struct Penalised : torch::nn::Module {
  Penalised() {
    table = register_module("table", nn::Embedding(11, kWidth));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 4; ++i) blocks->push_back(std::make_shared<VisionBlock>());
    full = register_module("whole", nn::PrepareInput());
    head = register_module("head", nn::Linear(kWidth, 11));
  }
  nn::Embedding table{nullptr};
  torch::nn::ModuleList blocks;
  nn::PrepareInput full{nullptr};
  nn::Linear head{nullptr};
};

class PenalisedPolicy : public PolicyFor<Penalised> {
 public:
  std::string name() const override { return "PenalisedPolicy"; }
  ModelSplit split(const Penalised&) const override {
    return {.shards = {{"table", Vocab{}},
                       {"blocks.*.up", Column{}},
                       {"blocks.*.down", Row{}},
                       {"blocks.*", SequenceParallel{}},
                       {"whole", PrepareInput{.from = Shard{1}, .to = Replicate{}}},
                       {"head", Column{}}},
            .stages = {.first = {"table"}, .repeated = "blocks", .last = {"whole", "head"}},
            .split_outputs = {{"logits", "head"}}};
  }
  TensorDict forward(Penalised& model, const StageContext& stage, TensorDict in) const override {
    torch::Tensor hidden = stage.is_first() ? model.table(in.at("input_ids")) : in.at("hidden");
    hidden = stage.run_layers(hidden, [&model, &stage, this](int layer, const torch::Tensor& x) {
      const torch::Tensor y = model.blocks->at<VisionBlock>(layer).forward(x);
      penalise(stage, 1e-2 * (y * y * (layer + 1)).sum());
      return y;
    });
    if (!stage.is_last()) return {{"hidden", hidden}};
    stage.add_loss("size", 1e-2 * model.full(hidden).exp().sum(), Replicate{});
    return {{"logits", model.head(hidden)}};
  }

 protected:
  virtual void penalise(const StageContext& stage, const torch::Tensor& loss) const {
    stage.add_loss("penalty", loss, Shard{1});
  }
};
class UnstatedPenalty final : public PenalisedPolicy {
 protected:
  void penalise(const StageContext& stage, const torch::Tensor& loss) const override {
    stage.add_loss("penalty", loss);
  }
};

Curve penalised_curve(const std::string& policy, const std::string& parallel, const std::string& schedule) {
  const torch::Tensor ids = torch::arange(20).view({4, 5}) % 11;
  return train(config_of(policy, parallel, schedule), deferred<Penalised>, cross_entropy(),
               make_batch({{"input_ids", ids}, {"labels", (ids + 1) % 11}}));
}

TEST(AddedLoss, WithinRecomputedLayersAndOnSequenceShardsEqualsOneRank) {
  policies().add<PenalisedPolicy>("penalised");
  const Curve one = penalised_curve("penalised", "{}", "{}");
  for (const char* parallel :
       {"{}", "{tensor: 2}", "{tensor: 2, sequence_parallel: true}", "{tensor: 3, sequence_parallel: true}",
        "{tensor: 2, pipeline: 2, sequence_parallel: true}"})
    for (const char* schedule : {"{microbatches: 2}", "{microbatches: 2, recompute: full}",
                                 "{microbatches: 2, recompute: full, recompute_layers: 1}",
                                 "{name: zb_h1, microbatches: 2, recompute: full}"}) {
      if (std::string(schedule).find("zb_h1") != std::string::npos && !std::strstr(parallel, "pipeline")) continue;
      expect_curve(one, penalised_curve("penalised", parallel, schedule), std::string(parallel) + schedule);
    }
}

TEST(AddedLoss, OnSequenceShardsItIsSaidWhatItGoesOver) {
  policies().add<UnstatedPenalty>("unstated_penalty");
  EXPECT_EQ(penalised_curve("unstated_penalty", "{tensor: 2}", "{}").code, 0);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(penalised_curve("unstated_penalty", "{tensor: 2, sequence_parallel: true}", "{}").code, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("add_loss: the activations are sequence shards, but the layout of the loss was not passed"));
}

}  // namespace
}  // namespace gantry::testing
