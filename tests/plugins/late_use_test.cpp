// Parameters that only some microbatches use, possibly on one replica only. The numbers equal one rank with
// one microbatch, for all ways of sharding the parameters over the replicas.
#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"
#include "toy_step.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kMarkedWords = 11, kMarkedWidth = 6;
constexpr int kMarkedLayers = 4;

// Computes `extra` only if a sample of the microbatch is marked.
struct MarkedLayerImpl : torch::nn::Module {
  MarkedLayerImpl() {
    up = register_module("up", nn::Linear(kMarkedWidth, kMarkedWidth));
    extra = register_module("extra", nn::Linear(kMarkedWidth, kMarkedWidth));
  }
  LayerParts parts(const torch::Tensor& marks) {
    return {{"mlp", [this, marks](const torch::Tensor& x) {
               const torch::Tensor y = x + torch::tanh(up(x));
               return marks.any().item<bool>() ? y + marks * extra(y) : y;
             }}};
  }
  nn::Linear up{nullptr}, extra{nullptr};
};
TORCH_MODULE(MarkedLayer);

struct MarkedImpl : torch::nn::Module {
  MarkedImpl() {
    tokens = register_module("tokens", nn::Embedding(kMarkedWords, kMarkedWidth));
    layers = register_module("layers", torch::nn::ModuleList());
    for (int i = 0; i < kMarkedLayers; ++i) layers->push_back(MarkedLayer());
    extra = register_module("extra", nn::Linear(kMarkedWidth, kMarkedWidth));
    head = register_module("head", nn::Linear(kMarkedWidth, kMarkedWords));
  }
  TensorDict stage_forward(const StageContext& stage, TensorDict in) {
    const torch::Tensor marks = stage.batch().at("input_ids").select(1, 0).eq(0).view({-1, 1, 1});
    TensorDict state = stage.is_first() ? TensorDict{{"hidden", tokens(in.at("input_ids"))}} : std::move(in);
    state = stage.run_layers(
        state, [&](int index) { return layers->at<MarkedLayerImpl>(index).parts(marks); }, 0);
    if (!stage.is_last()) return state;
    torch::Tensor x = state.at("hidden");
    if (marks.any().item<bool>()) x = x + marks * extra(x);
    return {{"logits", head(x)}};
  }
  nn::Embedding tokens{nullptr};
  torch::nn::ModuleList layers;
  nn::Linear extra{nullptr}, head{nullptr};
};
TORCH_MODULE(Marked);

struct MarkedPolicy final : PolicyFor<MarkedImpl> {
  std::string name() const override { return "MarkedPolicy"; }
  ModelSplit split(const MarkedImpl&) const override {
    return {.stages = {.first = {"tokens"}, .repeated = {{"layers", {}}}, .last = {"extra", "head"}},
            .batch = {.between = {"input_ids"}}};
  }
};

// The last of eight sequences is marked.
ToySteps marked_steps(const std::string& layout, int calls = 1) {
  if (!policies().contains("marked")) policies().add<MarkedPolicy>("marked");
  torch::Tensor ids = torch::arange(8 * 5).view({8, 5}) * 3 % (kMarkedWords - 1) + 1;
  ids[7][0] = 0;
  return run_toy({.build = [] { return Marked().ptr(); },
                  .batch = {{"input_ids", ids}, {"labels", (ids + 4) % kMarkedWords}},
                  .step_tokens = calls > 1 ? 8 * 5 : 0,
                  .calls = calls},
                 toy_config("marked", layout));
}

TEST(LateUse, ParametersOfALaterMicrobatchHaveTheGradientsOfOneRank) {
  const ToySteps expected = marked_steps("parallel: {}\nschedule: {microbatches: 1}");
  EXPECT_GT(expected.gradients.at("layers.0.extra.weight").abs().max().item<double>(), 0);
  for (const char* zero : {"2", "3", "3, gather: step", "3, gather: microbatch"})
    for (const char* rest : {"}\nschedule: {microbatches: 1}", "}\nschedule: {microbatches: 2}",
                             ", pipeline: 2}\nschedule: {microbatches: 2, name: zb_h1}"}) {
      // One bucket per parameter: replicas fill the buckets in different orders.
      const std::string layout = std::string("parallel: {data: 2, bucket_mb: 0.0001, zero: ") + zero + rest;
      SCOPED_TRACE(layout);
      expect_steps(expected, marked_steps(layout));
    }
}

TEST(LateUse, OfALaterCallToo) {
  expect_steps(marked_steps("parallel: {}\nschedule: {microbatches: 1}"),
               marked_steps("parallel: {data: 2, zero: 3}\nschedule: {microbatches: 2}", 2));
  expect_steps(marked_steps("parallel: {}\nschedule: {microbatches: 1}"),
               marked_steps("parallel: {data: 2, zero: 2, bucket_mb: 0.0001}\nschedule: {microbatches: 2}", 2));
}

}  // namespace
}  // namespace gantry::testing
