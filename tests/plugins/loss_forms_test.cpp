// Losses over features, heads and parameters: every layout gives those of plain autograd on one device.
#include <gmock/gmock.h>

#include "gantry/booster/compare_layouts.h"
#include "gantry/nn/norms.h"
#include "gantry/tensors/libtorch.h"
#include "toy_step.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kPenaltyTokens = 11, kPenaltyWidth = 8, kQueryHeads = 4, kHeadWidth = 2;

torch::Tensor penalty(const torch::Tensor& part) { return 0.1 * part.pow(3).sum(); }

// Four query heads on two key heads, so that four ranks of tp share key heads.
struct PenaltyBlockImpl : torch::nn::Module {
  explicit PenaltyBlockImpl(gantry::Layout of_gates) : of_gates(of_gates) {
    norm = register_module("norm", nn::LayerNorm(kPenaltyWidth));
    queries = register_module("queries", nn::Linear(kPenaltyWidth, kPenaltyWidth));
    keys = register_module("keys", nn::Linear(kPenaltyWidth, kPenaltyWidth / 2));
    out = register_module("out", nn::Linear(kPenaltyWidth, kPenaltyWidth));
  }
  LayerParts parts() {
    return {{"mixer", [this](const torch::Tensor& x) {
               const torch::Tensor normed = norm(x);
               const torch::Tensor query = queries(normed).unflatten(-1, {-1, kHeadWidth});
               const torch::Tensor key = keys(normed).unflatten(-1, {-1, kHeadWidth});
               const torch::Tensor gates =
                   torch::tanh(query * key.repeat_interleave(query.size(-2) / key.size(-2), -2));
               add_loss("gates", 0.2 * gates.square().sum(), of_gates);
               add_parameter_loss("norms", norm->weight, penalty);
               add_parameter_loss("keys", keys->weight, penalty);
               add_parameter_loss("queries", queries->weight, penalty);
               add_parameter_loss("biases", out->bias, penalty);
               return x + out(gates.flatten(-2));
             }}};
  }
  gantry::Layout of_gates;
  nn::LayerNorm norm{nullptr};
  nn::Linear queries{nullptr}, keys{nullptr}, out{nullptr};
};
TORCH_MODULE(PenaltyBlock);

struct PenaltyModelImpl : torch::nn::Module {
  explicit PenaltyModelImpl(const gantry::Layout& of_gates = Partial{}) {
    table = register_module("table", nn::Embedding(kPenaltyTokens, kPenaltyWidth));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 4; ++i) blocks->push_back(PenaltyBlock(of_gates));
    head = register_module("head", nn::Linear(kPenaltyWidth, kPenaltyTokens));
    head->tie_weight(table->weight);
  }
  TensorDict stage_forward(const StageContext& stage, TensorDict in) {
    torch::Tensor hidden = stage.is_first() ? table(in.at("input_ids")) : in.at("hidden");
    if (stage.is_first()) stage.add_parameter_loss("table", table->weight, penalty);
    hidden = stage.run_layers(hidden, [this](int index) { return blocks->at<PenaltyBlockImpl>(index).parts(); });
    if (!stage.is_last()) return {{"hidden", hidden}};
    if (is_wrong) stage.add_parameter_loss("rows", table->weight.narrow(0, 0, 1), penalty);
    return {{"logits", head(hidden)}};
  }
  TensorDict forward(const TensorDict& in) { return stage_forward(*StageContext::full(blocks->size(), in), in); }
  bool is_wrong = false;
  nn::Embedding table{nullptr};
  torch::nn::ModuleList blocks;
  nn::Linear head{nullptr};
};
TORCH_MODULE(PenaltyModel);

struct PenaltyPolicy final : PolicyFor<PenaltyModelImpl> {
  std::string name() const override { return "PenaltyPolicy"; }
  ModelSplit split(const PenaltyModelImpl&) const override {
    return {.shards = {{"table", Vocab{}},
                       {"blocks.*.queries", Column{.unit = kHeadWidth}},
                       {"blocks.*.keys", Column{.unit = kHeadWidth, .users = kQueryHeads}},
                       {"blocks.*.out", Row{.unit = kHeadWidth}},
                       {"blocks.*", SequenceParallel{}},
                       {"head", Column{}}},
            .stages = {.first = {"table"}, .repeated = "blocks", .last = {"head"}},
            .split_outputs = {{"logits", "head"}},
            .context = ContextSplit{.heads = {.heads = 0, .key_heads = 0}},
            .batch = {.between = {}}};
  }
  SharedParameters shared_parameters(const PenaltyModelImpl&) const override {
    return {{"table.weight", "head.weight"}};
  }
};

// Six samples of eight tokens. The number of labels differs between samples.
TensorDict penalty_batch() {
  const torch::Tensor ids = torch::arange(48).view({6, 8}) * 7 % kPenaltyTokens;
  const torch::Tensor counts = torch::tensor({5, 2, 4, 8, 5, 2}).unsqueeze(1);
  return {{"input_ids", ids}, {"labels", ((ids + 3) % kPenaltyTokens).masked_fill(torch::arange(8) >= counts, -100)}};
}
constexpr std::int64_t kPenaltyCount = 26;

ToyCase penalized(int calls = 1, std::int64_t step_tokens = 0, std::int64_t step_samples = 0) {
  return {[] { return PenaltyModel().ptr(); }, penalty_batch(), step_tokens, calls, step_samples};
}

Config penalty_config(const std::string& layout) {
  if (!policies().contains("penalized")) policies().add<PenaltyPolicy>("penalized");
  return toy_config("penalized", layout);
}

// The same two steps with plain LibTorch.
ToySteps penalized_by_autograd() { return toy_by_autograd<PenaltyModelImpl>(penalized(), kPenaltyCount); }

TEST(LossForms, AreExactInEveryLayout) {
  const ToySteps expected = penalized_by_autograd();
  ASSERT_EQ(expected.added.front().size(), 6U);
  for (const char* layout :
       {"parallel: {}\nschedule: {microbatches: 4}", "parallel: {tensor: 2}\nschedule: {microbatches: 1}",
        "parallel: {tensor: 4}\nschedule: {microbatches: 2, recompute: parts}",
        "parallel: {tensor: 4, sequence_parallel: true}\nschedule: {microbatches: 4, recompute: full}",
        "parallel: {data: 4}\nschedule: {microbatches: 1}", "parallel: {data: 4, zero: 3}\nschedule: {microbatches: 2}",
        "parallel: {tensor: 2, data: 2, zero: 2, sequence_parallel: true}\nschedule: {microbatches: 2}",
        "parallel: {pipeline: 2, tensor: 2}\nschedule: {microbatches: 4, name: zb_h1}",
        "parallel: {pipeline: 2, data: 2, zero: 3}\nschedule: {microbatches: 2}",
        "parallel: {context: 2}\nschedule: {microbatches: 2}",
        "parallel: {context: 2, tensor: 2, sequence_parallel: true}\nschedule: {microbatches: 1}"}) {
    SCOPED_TRACE(layout);
    expect_steps(expected, run_toy(penalized(), penalty_config(layout)));
  }
}

TEST(LossForms, SeveralCallsStateTokensAndSamples) {
  const ToySteps expected = penalized_by_autograd();
  for (const int calls : {2, 3})
    expect_steps(expected, run_toy(penalized(calls, kPenaltyCount, 6),
                                   penalty_config("parallel: {data: 2}\nschedule: {microbatches: 1}")));
}

// The exit code of a call over tp 2. `adds`: later calls add to its gradients.
int outcome(const ToyCase& toy, const Criterion& criterion, bool is_wrong = false, bool adds = false) {
  const Config config = penalty_config("parallel: {tensor: 2}\nschedule: {microbatches: 2}");
  return start_ranks()(config, [&](World& world) {
    Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
    auto model = build_toy(toy);
    std::dynamic_pointer_cast<PenaltyModelImpl>(model)->is_wrong = is_wrong;
    auto optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.05);
    auto boosted = booster.boost(model, optimizer, criterion);
    std::optional<Booster::NoSync> guard;
    if (adds) guard.emplace(booster.plugin().no_sync_guards(nullptr));
    booster.execute_pipeline(make_batch(toy.batch), boosted, {.step_samples = toy.step_samples});
  });
}

std::string refusal(const ToyCase& toy, const Criterion& criterion, bool is_wrong = false, bool adds = false) {
  ::testing::internal::CaptureStderr();
  EXPECT_NE(outcome(toy, criterion, is_wrong, adds), 0);
  return ::testing::internal::GetCapturedStderr();
}

TEST(LossForms, AreRefusedWithoutACountAndForViews) {
  const Criterion own = [](const TensorDict& outputs, const TensorDict& batch) {
    return Loss{outputs.at("logits").square().sum(), batch.at("labels").ne(-100).sum()};
  };
  EXPECT_THAT(refusal(penalized(), own), HasSubstr("number of tokens or samples of the step is unknown"));
  // A function that counts the labels is enough.
  Criterion counting = own;
  counting.set_count([](const TensorDict& batch) { return batch.at("labels").ne(-100).sum().item<std::int64_t>(); });
  EXPECT_EQ(outcome(penalized(), counting), 0);
  // Several calls need both numbers.
  EXPECT_THAT(refusal(penalized(1, 0, 6), cross_entropy(), /*is_wrong=*/false, /*adds=*/true),
              HasSubstr("number of tokens or samples of the step is unknown"));
  EXPECT_THAT(refusal(penalized(), cross_entropy(), /*is_wrong=*/true),
              HasSubstr("the tensor of the loss 'rows' is not a parameter of the model"));
}

TEST(LossForms, AWrongFormIsNamedByTheComparison) {
  const Config config = penalty_config("parallel: {}\nschedule: {microbatches: 1}");
  const auto found = compare_layouts(config, [] { return PenaltyModel(Replicate{}).ptr(); }, penalty_batch(),
                                     {"parallel.tensor=2", "parallel.data=2"});
  EXPECT_FALSE(found.at(0).is_equal());
  EXPECT_THAT(describe(found.at(0)), HasSubstr("added loss gates: "));
  EXPECT_THAT(describe(found.at(0)), HasSubstr("added in blocks.0 (mixer), blocks.1 (mixer)"));
  EXPECT_TRUE(found.at(1).is_equal()) << describe(found.at(1));
}

}  // namespace
}  // namespace gantry::testing
