// Losses that modules inside layers add: every layout gives the numbers of plain autograd on one device.
#include <gmock/gmock.h>

#include "gantry/nn/norms.h"
#include "gantry/tensors/libtorch.h"
#include "toy_step.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kRoutedTokens = 11, kRoutedWidth = 8;

// A small router: weights the features by a score of the token, and adds a loss.
struct GateImpl : torch::nn::Module {
  GateImpl() { scores = register_module("scores", torch::nn::Linear(kRoutedWidth, 3)); }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor shares = scores(x).softmax(-1);
    add_loss("balance", 0.3 * shares.square().sum(), Shard{1});
    return x * shares.narrow(-1, 0, 1);
  }
  torch::nn::Linear scores{nullptr};
};
TORCH_MODULE(Gate);

struct RoutedBlockImpl : torch::nn::Module {
  RoutedBlockImpl() {
    norm = register_module("norm", nn::LayerNorm(kRoutedWidth));
    up = register_module("up", nn::Linear(kRoutedWidth, 12));
    down = register_module("down", nn::Linear(12, kRoutedWidth));
    gate = register_module("gate", Gate());
    drop = register_module("drop", nn::Dropout(0.2));
  }
  LayerParts parts() {
    return {{"mlp", [this](const torch::Tensor& x) { return x + drop(down(torch::tanh(up(norm(x))))); }},
            {"gate", [this](const torch::Tensor& x) { return x + gate(x); }}};
  }
  nn::LayerNorm norm{nullptr};
  nn::Linear up{nullptr}, down{nullptr};
  Gate gate{nullptr};
  nn::Dropout drop{nullptr};
};
TORCH_MODULE(RoutedBlock);

struct RoutedImpl : torch::nn::Module {
  RoutedImpl() {
    table = register_module("table", nn::Embedding(kRoutedTokens, kRoutedWidth));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 4; ++i) blocks->push_back(RoutedBlock());
    head = register_module("head", nn::Linear(kRoutedWidth, kRoutedTokens));
  }
  TensorDict stage_forward(const StageContext& stage, TensorDict in) {
    torch::Tensor hidden = stage.is_first() ? table(in.at("input_ids")) : in.at("hidden");
    hidden = stage.run_layers(hidden, [this](int index) { return blocks->at<RoutedBlockImpl>(index).parts(); });
    if (!stage.is_last()) return {{"hidden", hidden}};
    stage.add_loss("size", 0.01 * hidden.square().sum(), Shard{1});
    return {{"logits", head(hidden)}};
  }
  TensorDict forward(const TensorDict& in) { return stage_forward(*StageContext::full(blocks->size(), in), in); }
  nn::Embedding table{nullptr};
  torch::nn::ModuleList blocks;
  nn::Linear head{nullptr};
};
TORCH_MODULE(Routed);

// A policy that states only the split, without any arithmetic.
struct RoutedPolicy final : PolicyFor<RoutedImpl> {
  std::string name() const override { return "RoutedPolicy"; }
  ModelSplit split(const RoutedImpl&) const override {
    return {.shards = {{"table", Vocab{}},
                       {"blocks.*.up", Column{}},
                       {"blocks.*.down", Row{}},
                       {"blocks.*", SequenceParallel{}},
                       {"head", Column{}}},
            .stages = {.first = {"table"}, .repeated = "blocks", .last = {"head"}},
            .split_outputs = {{"logits", "head"}},
            .batch = {.between = {}}};
  }
};

// Six samples of five tokens. The number of counted labels differs between samples; 19 count in all.
TensorDict routed_batch() {
  const torch::Tensor ids = torch::arange(30).view({6, 5}) * 7 % kRoutedTokens;
  const torch::Tensor counts = torch::tensor({5, 2, 4, 1, 5, 2}).unsqueeze(1);
  return {{"input_ids", ids}, {"labels", ((ids + 3) % kRoutedTokens).masked_fill(torch::arange(5) >= counts, -100)}};
}
constexpr std::int64_t kCounted = 19;

ToyCase routed(int calls = 1, std::int64_t step_tokens = 0) {
  return {[] { return Routed().ptr(); }, routed_batch(), step_tokens, calls};
}

ToySteps routed_steps(const std::string& layout, const ToyCase& toy = routed()) {
  if (!policies().contains("routed")) policies().add<RoutedPolicy>("routed");
  return run_toy(toy, toy_config("routed", layout));
}

// The same two steps with plain LibTorch.
ToySteps by_autograd() {
  const ToySteps steps = toy_by_autograd<RoutedImpl>(routed(), kCounted);
  EXPECT_TRUE(steps.added.front().contains("balance") && steps.added.front().contains("size"));
  return steps;
}

TEST(AddedLossInAnyPart, IsExactInEveryLayout) {
  const ToySteps expected = by_autograd();
  for (const char* parallel :
       {"{}", "{tensor: 2}", "{tensor: 2, sequence_parallel: true}", "{data: 2}", "{pipeline: 2}",
        "{pipeline: 2, tensor: 2, sequence_parallel: true}", "{pipeline: 2, data: 2}"})
    for (const char* schedule : {"microbatches: 1", "microbatches: 3", "microbatches: 3, recompute: full",
                                 "microbatches: 2, recompute: parts", "microbatches: 3, recompute: selective"}) {
      SCOPED_TRACE(std::string(parallel) + " " + schedule);
      expect_steps(expected, routed_steps(std::string("parallel: ") + parallel + "\nschedule: {" + schedule + "}"));
    }
}

TEST(AddedLossInAnyPart, IsExactInEverySchedule) {
  const ToySteps expected = by_autograd();
  for (const char* name : {"gpipe", "interleaved_1f1b", "zb_h1", "zb_v", "dualpipe_v"})
    for (const char* recompute : {"none", "parts", "full"}) {
      SCOPED_TRACE(std::string(name) + " " + recompute);
      expect_steps(expected, routed_steps(std::string("parallel: {pipeline: 2}\nschedule: {microbatches: 4, name: ") +
                                          name + ", recompute: " + recompute + "}"));
    }
}

TEST(AddedLossInAnyPart, SeveralCallsStateTheirTokensFirst) {
  const ToySteps expected = by_autograd();
  for (const char* parallel : {"{}", "{pipeline: 2}", "{data: 2, zero: 1}"}) {
    SCOPED_TRACE(parallel);
    const std::string layout = std::string("parallel: ") + parallel + "\nschedule: {microbatches: 1}";
    for (const int calls : {1, 2, 3}) expect_steps(expected, routed_steps(layout, routed(calls, kCounted)));
  }
}

std::string failure_of(const ToyCase& toy) {
  ::testing::internal::CaptureStderr();
  if (!policies().contains("routed")) policies().add<RoutedPolicy>("routed");
  const Config config = toy_config("routed", "parallel: {pipeline: 2}\nschedule: {microbatches: 2}");
  EXPECT_NE(start_ranks()(config,
                          [&](World& world) {
                            Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
                            auto model = build_toy(toy);
                            auto optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.05);
                            auto boosted = booster.boost(model, optimizer, cross_entropy());
                            const auto guard = booster.no_sync(boosted);
                            booster.execute_pipeline(make_batch(toy.batch), boosted, {.step_tokens = toy.step_tokens});
                            booster.sync_gradients(boosted);
                          }),
            0);
  return ::testing::internal::GetCapturedStderr();
}

TEST(AddedLossInAnyPart, IsRefusedWhereTheStepsTokensAreNotKnown) {
  EXPECT_THAT(failure_of(routed()),
              HasSubstr("is added, but the step has several calls; expected the number of tokens"));
  EXPECT_THAT(failure_of(routed(1, 20)), HasSubstr("step_tokens: the value is 20, but the step's calls counted 19"));
}

}  // namespace
}  // namespace gantry::testing
