// Two lists of layers of different lengths: an encoder, and a decoder that reads the encoder's output in
// every layer. Split anywhere over the stages, they equal plain autograd on one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gantry/nn/dropout.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/norms.h"
#include "gantry/tensors/libtorch.h"
#include "toy_step.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kPairWords = 13, kPairWidth = 8;
constexpr int kEncoder = 0, kDecoder = 1, kEncoderLayers = 2, kDecoderLayers = 4;

struct PairBlockImpl : torch::nn::Module {
  PairBlockImpl() {
    norm = register_module("norm", nn::LayerNorm(kPairWidth));
    up = register_module("up", nn::Linear(kPairWidth, 12));
    down = register_module("down", nn::Linear(12, kPairWidth));
    drop = register_module("drop", nn::Dropout(0.2));
  }
  torch::Tensor mlp(const torch::Tensor& x) { return x + drop(down(torch::tanh(up(norm(x))))); }
  // Attention from x to `of`, [samples, tokens, features], plus x. The numbers of tokens may differ.
  static torch::Tensor read(const torch::Tensor& x, const torch::Tensor& of) {
    return x + at::matmul(at::matmul(x, of.transpose(1, 2)).softmax(-1), of);
  }
  LayerParts encoder_parts() {
    return {{"attention", [](const torch::Tensor& x) { return read(x, x); }}, {"mlp", [this](const torch::Tensor& x) {
                                                                                 add_loss("encoder",
                                                                                          0.02 * x.square().sum());
                                                                                 return mlp(x);
                                                                               }}};
  }
  // "cross" returns its result as a new entry, which "mlp" consumes and removes.
  LayerParts decoder_parts() {
    return {{"cross",
             [](const TensorDict& state) {
               return TensorDict{{"read", read(state.at("hidden"), state.at("encoded"))}};
             }},
            {"mlp", [this](const TensorDict& state) {
               const torch::Tensor made = mlp(state.at("read"));
               add_loss("decoder", 0.01 * made.square().sum());
               return TensorDict{{"hidden", state.at("hidden") + made}, {"read", {}}};
             }}};
  }
  nn::LayerNorm norm{nullptr};
  nn::Linear up{nullptr}, down{nullptr};
  nn::Dropout drop{nullptr};
};
TORCH_MODULE(PairBlock);

struct PairImpl : torch::nn::Module {
  PairImpl() {
    source = register_module("source", nn::Embedding(kPairWords, kPairWidth));
    encoder = register_module("encoder", torch::nn::ModuleList());
    for (int i = 0; i < kEncoderLayers; ++i) encoder->push_back(PairBlock());
    middle = register_module("middle", nn::LayerNorm(kPairWidth));
    target = register_module("target", nn::Embedding(kPairWords, kPairWidth));
    decoder = register_module("decoder", torch::nn::ModuleList());
    for (int i = 0; i < kDecoderLayers; ++i) decoder->push_back(PairBlock());
    head = register_module("head", nn::Linear(kPairWidth, kPairWords));
  }
  TensorDict stage_forward(const StageContext& stage, TensorDict in) {
    // A stage boundary carries only the tensors that later stages read.
    const std::size_t read = stage.layer_range().begin > kEncoderLayers ? 2 : 1;
    EXPECT_TRUE(stage.is_first() || in.size() == read) << describe(in);
    TensorDict state = stage.is_first() ? TensorDict{{"hidden", source(in.at("input_ids"))}} : std::move(in);
    state = stage.run_layers(
        state, [this](int index) { return encoder->at<PairBlockImpl>(index).encoder_parts(); }, kEncoder);
    if (stage.begins(kDecoder))
      state = {{"hidden", target(stage.batch().at("decoder_input_ids"))}, {"encoded", middle(state.at("hidden"))}};
    state = stage.run_layers(
        state, [this](int index) { return decoder->at<PairBlockImpl>(index).decoder_parts(); }, kDecoder);
    if (!stage.is_last()) return state;
    return {{"logits", head(state.at("hidden"))}};
  }
  TensorDict forward(const TensorDict& in) {
    return stage_forward(*StageContext::full({kEncoderLayers, kDecoderLayers}, in), in);
  }
  nn::Embedding source{nullptr}, target{nullptr};
  torch::nn::ModuleList encoder, decoder;
  nn::LayerNorm middle{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Pair);

struct PairPolicy final : PolicyFor<PairImpl> {
  std::string name() const override { return "PairPolicy"; }
  ModelSplit split(const PairImpl&) const override {
    return {.shards = {{"source", Vocab{}},
                       {"target", Vocab{}},
                       {"encoder.*.up", Column{}},
                       {"encoder.*.down", Row{}},
                       {"decoder.*.up", Column{}},
                       {"decoder.*.down", Row{}},
                       {"head", Column{}}},
            .stages = {.first = {"source"},
                       .repeated = {{"encoder", {}}, {"decoder", {"middle", "target"}}},
                       .last = {"head"}},
            .split_outputs = {{"logits", "head"}},
            .batch = {.between = {"decoder_input_ids"}}};
  }
};

// Inputs of seven tokens, outputs of four.
TensorDict pairs() {
  const torch::Tensor from = torch::arange(8 * 7).view({8, 7}) * 5 % kPairWords;
  const torch::Tensor to = (torch::arange(8 * 4).view({8, 4}) * 7 + 2) % kPairWords;
  return {{"input_ids", from}, {"decoder_input_ids", to}, {"labels", (to + 4) % kPairWords}};
}

ToySteps pair_steps(const std::string& layout) {
  if (!policies().contains("pair")) policies().add<PairPolicy>("pair");
  return run_toy({.build = [] { return Pair().ptr(); }, .batch = pairs()}, toy_config("pair", layout));
}

ToySteps pair_by_autograd() {
  const auto model = std::dynamic_pointer_cast<PairImpl>(build_toy({.build = [] { return Pair().ptr(); }}));
  materialize(*model, 1);
  set_global_names(*model);
  const TensorDict batch = pairs();
  ToySteps steps;
  for (int step = 0; step < 2; ++step) {
    TensorDict losses;
    const ForwardScope scope(
        {.random = RandomContext{.seed = 1, .step = static_cast<std::uint64_t>(step)}, .losses = &losses});
    const torch::Tensor logits = model->forward(batch).at("logits").flatten(0, 1);
    torch::Tensor sum = torch::cross_entropy_loss(logits, batch.at("labels").flatten(), {}, at::Reduction::Sum);
    steps.added.emplace_back();
    for (const auto& [name, loss] : losses) {
      steps.added.back()[name] = loss.item<double>();
      sum = sum + loss;
    }
    (sum / batch.at("labels").numel()).backward();
    steps.losses.push_back(sum.item<double>());
    const torch::NoGradGuard no_grad;
    for (const auto& item : model->named_parameters()) {
      torch::Tensor parameter = item.value();
      if (step == 1) steps.gradients.set(item.key(), parameter.grad().clone());
      parameter.sub_(0.05 * parameter.grad());
      parameter.mutable_grad() = torch::Tensor();
    }
  }
  return steps;
}

TEST(LayerLists, EncoderAndDecoderSplitAnywhereEqualOneDevice) {
  const ToySteps expected = pair_by_autograd();
  EXPECT_EQ(expected.added.front().size(), 2u);
  constexpr int kLayers = kEncoderLayers + kDecoderLayers;
  for (int first = 1; first < kLayers; ++first)
    for (int second = 1; first + second < kLayers; ++second)
      for (const char* schedule : {"name: 1f1b", "name: zb_h1, recompute: full"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", first, second, schedule));
        expect_steps(expected, pair_steps(fmt::format("parallel: {{pipeline: 3}}\nschedule: {{microbatches: 4, layers: "
                                                      "[{}, {}, {}], {}}}",
                                                      first, second, kLayers - first - second, schedule)));
      }
}

TEST(LayerLists, WithEveryKindOfScheduleAndTensorParallelism) {
  const ToySteps expected = pair_by_autograd();
  for (const char* layout :
       {"parallel: {}\nschedule: {microbatches: 1}", "parallel: {tensor: 2}\nschedule: {microbatches: 3}",
        "parallel: {}\nschedule: {microbatches: 2, recompute: parts}",
        "parallel: {pipeline: 3}\nschedule: {microbatches: 3, name: interleaved_1f1b, chunks: 2}",
        "parallel: {pipeline: 3}\nschedule: {microbatches: 4, name: zb_v}",
        "parallel: {pipeline: 3}\nschedule: {microbatches: 4, name: zb_v, recompute: parts}",
        "parallel: {pipeline: 2, tensor: 2}\nschedule: {microbatches: 4, recompute: full}",
        "parallel: {pipeline: 2, data: 2}\nschedule: {microbatches: 2, layers: balanced}"}) {
    SCOPED_TRACE(layout);
    expect_steps(expected, pair_steps(layout));
  }
}

}  // namespace
}  // namespace gantry::testing
