// Adapters in every layout compared with one rank, in float64. There are three updates, because B starts at
// zero, so that A has no gradient in the first one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/sharding/adapter_split.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/linear.h"
#include "gantry/optimizers/optimizer_memory.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "program.h"

namespace gantry::testing {
namespace {

std::vector<LoraLayout> few_layouts() {
  return {
      {.layout = {.tensor = 2}},
      {.layout = {.tensor = 3}, .sequence_parallel = true},
      {.layout = {.tensor = 2}, .sequence_parallel = true, .recompute = "full"},
      {.layout = {.pipeline = 2, .tensor = 3}, .recompute = "parts"},
      {.layout = {.pipeline = 2}, .schedule = "zb_h1"},
      {.layout = {.data = 2}, .zero = 1},
      {.layout = {.data = 3}, .zero = 2},
      {.layout = {.data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 2},
      {.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 1},
      {.layout = {.data = 3}, .zero = 3, .gather = "microbatch"},
      {.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 3, .schedule = "zb_h1"},
      {.layout = {.data = 2, .context = 2}, .zero = 3, .gather = "step", .recompute = "full"},
      {.layout = {.tensor = 2, .context = 2}, .sequence_parallel = true},
      {.layout = {.pipeline = 2, .context = 3}, .zero = 1}};
}

void expect_one_ranks_numbers(double dropout) {
  const LoraRun one = run_lora(lora_config({}, dropout));
  for (const auto& how : is_long_form() ? all_lora_layouts() : few_layouts()) {
    expect_same_run(one, run_lora(lora_config(how, dropout)), describe(how));
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(LoraGrid, EveryLayoutHasOneRanksNumbers) { expect_one_ranks_numbers(0); }
TEST(LoraGrid, DropoutToo) { expect_one_ranks_numbers(0.3); }

TEST(LoraGrid, DropoutIsDrawn) {
  EXPECT_NE(run_lora(lora_config({}, 0.3)).losses[2], run_lora(lora_config({})).losses[2]);
}

TEST(LoraGrid, AdaptersAloneAreTrained) {
  const Config config = lora_config({.layout = {.data = 2, .tensor = 2}});
  TensorDict first;
  const LoraRun run = run_lora(config, 3, [&](Rig& rig) {
    TensorDict weights = rig.weights();
    if (rig.plugin->mesh().rank() == 0) first = weights;
  });
  EXPECT_EQ(run.gradients.size(), 2u * 2 * 7);
  for (const auto& [name, before] : first)
    EXPECT_EQ(!torch::equal(before, run.weights.at(name)), is_adapter(name)) << name;
}

TEST(LoraGrid, FrozenWeightsHaveNoGradientsMastersOrMoments) {
  Config config = lora_config({.layout = {.tensor = 2}, .zero = 1});
  config.precision = "bfloat16";
  run_lora(config, 2, {}, [](Rig& rig) {
    const auto& gradients = rig.boosted.optimizer->gradients();
    std::int64_t trained = 0;
    for (std::size_t i = 0; i < gradients.parameters().size(); ++i) {
      const auto& held = gradients.parameters()[i];
      EXPECT_EQ(gradients.trained(i), is_adapter(held.placement.name)) << held.placement.name;
      EXPECT_EQ(held.tensor.grad().defined(), is_adapter(held.placement.name)) << held.placement.name;
      if (gradients.trained(i)) trained += held.tensor.numel();
    }
    const auto bytes = optimizer_bytes(rig.boosted.optimizer->inner());
    EXPECT_EQ(bytes.held, 2 * 4 * trained);  // two moments of float32
    EXPECT_EQ(bytes.to_come, 0);
  });
}

// Under ZeRO 3 frozen layers have only local shards, and only adapters get gradients.
TEST(LoraGrid, FrozenRowsHaveNoGradientsUnderZero3) {
  for (const char* gather : {"step", "microbatch"})
    run_lora(lora_config({.layout = {.data = 2}, .zero = 3, .gather = gather}), 2, {}, [](Rig& rig) {
      const auto& gradients = rig.boosted.optimizer->gradients();
      const auto& held = rig.boosted.model->stage_module().parameters;
      for (std::size_t i = 0; i < held.size(); ++i) {
        const std::string& name = held[i].placement.name;
        EXPECT_EQ(gradients.trained(i), is_adapter(name)) << name;
        EXPECT_FALSE(gradients.parameters()[i].tensor.grad().defined()) << name;
        const auto full = elements_of(held[i].placement.global_shape);
        EXPECT_LT(held[i].tensor.numel(), full) << name;
        if (gradients.trained(i)) EXPECT_EQ(gradients.gradient(i).numel(), held[i].tensor.numel()) << name;
      }
    });
}

// alpha / sqrt(r), other ranks for some layers, and modules that are trained in full.
TEST(LoraGrid, ScalesRanksAndSavedModulesGoByTheirKeys) {
  const auto config = [](const LoraLayout& how) {
    Config made = lora_config(how);
    made.lora.target_modules = {"q_proj", "down_proj"};
    made.lora.modules_to_save = {"lm_head", "norm"};
    made.lora.rslora = true;
    made.lora.rank_pattern = {{"layers\\.1\\..*q_proj", 2}};
    made.lora.alpha_pattern = {{"down_proj", 7}};
    return made;
  };
  const LoraRun one = run_lora(config({}));
  EXPECT_EQ(one.weights.at("layers.0.self_attn.q_proj.lora_A").size(0), 3);
  EXPECT_EQ(one.weights.at("layers.1.self_attn.q_proj.lora_A").size(0), 2);
  EXPECT_TRUE(one.gradients.contains("lm_head.weight"));
  EXPECT_TRUE(one.gradients.contains("norm.weight"));
  EXPECT_FALSE(one.gradients.contains("layers.0.input_layernorm.weight"));
  for (const LoraLayout& how : {LoraLayout{.layout = {.tensor = 3}, .sequence_parallel = true},
                                LoraLayout{.layout = {.pipeline = 2, .data = 2}, .zero = 2},
                                LoraLayout{.layout = {.data = 2, .tensor = 2}, .zero = 3}})
    expect_same_run(one, run_lora(config(how)), describe(how));
}

// A single module: its output and the gradients of A and B equal those of the merged weight under autograd.
TEST(LoraLayer, IsItsMergedWeight) {
  nn::Linear layer(5, 4);
  layer->to(torch::kFloat64);
  layer->add_adapter({.rank = 2, .scale = 1.75});
  materialize(*layer, 1);
  {
    const torch::NoGradGuard no_grad;
    EXPECT_LE(layer->lora_a.abs().max().item<double>(), 1 / std::sqrt(5.0));
    EXPECT_GT(layer->lora_a.abs().max().item<double>(), 0.5 / std::sqrt(5.0));
    EXPECT_EQ(layer->lora_b.abs().max().item<double>(), 0);
    layer->lora_b.copy_(torch::sin(torch::arange(8, torch::kFloat64)).view({4, 2}));
  }
  layer->weight.set_requires_grad(false);
  const torch::Tensor input = torch::cos(torch::arange(15, torch::kFloat64)).view({3, 5});
  const torch::Tensor a = layer->lora_a.detach().clone().requires_grad_(),
                      b = layer->lora_b.detach().clone().requires_grad_();
  const torch::Tensor expected =
      torch::nn::functional::linear(input, layer->weight + 1.75 * torch::mm(b, a), layer->bias.detach());
  const torch::Tensor got = layer(input);
  EXPECT_LE((got - expected).abs().max().item<double>(), 1e-12);
  got.pow(2).sum().backward();
  expected.pow(2).sum().backward();
  EXPECT_LE((layer->lora_a.grad() - a.grad()).abs().max().item<double>(), 1e-12);
  EXPECT_LE((layer->lora_b.grad() - b.grad()).abs().max().item<double>(), 1e-12);
  EXPECT_FALSE(layer->weight.grad().defined());
}

struct TwoLayers : torch::nn::Module {
  explicit TwoLayers(double dropout) {
    in = register_module("in", nn::Linear(6, 7));
    out = register_module("out", nn::Linear(7, 5));
    const nn::AdapterOptions adapter{.rank = 2, .scale = 1.5, .dropout = dropout};
    set_dtype(*this, torch::kFloat64);
    in->add_adapter(adapter);
    out->add_adapter(adapter);
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::tanh(in(x))); }
  nn::Linear in{nullptr}, out{nullptr};
};

// Deferred, so that materialize() gives every rank the same values.
std::shared_ptr<TwoLayers> two_layers(double dropout) {
  const DeferredInit deferred;
  return std::make_shared<TwoLayers>(dropout);
}

void fill_b(nn::Linear& layer, const Range& rows) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor full =
      torch::sin(torch::arange(layer->options.out_features() * 2, torch::kFloat64)).view({-1, 2});
  layer->lora_b.copy_(full.narrow(0, rows.begin, rows.size()));
}

// Without boost(), the backward itself reduces the partial sums.
TEST(LoraLayer, SplitModulesOfOnesOwnSumInTheBackward) {
  for (const double dropout : {0.0, 0.4})
    for (const bool sequence : {false, true})
      run_ranks(3, [&](World&, ProcessGroupMesh& mesh) {
        ProcessGroup& group = mesh["tp"];
        const auto dense_model = two_layers(dropout), split_model = two_layers(dropout);
        TwoLayers &dense = *dense_model, &split = *split_model;
        Column column;
        Row row;
        if (sequence) column.input = Shard{1}, row.output = Shard{1};
        parallelize_module(split, group, {{"in", column}, {"out", row}});
        for (TwoLayers* model : {&dense, &split}) {
          materialize(*model, 1);
          set_global_names(*model);
        }
        const Range rows = shard(0, 7, 3).ranges(group.rank()).front();
        fill_b(dense.in, {0, 7});
        fill_b(split.in, rows);
        fill_b(dense.out, {0, 5});
        fill_b(split.out, {0, 5});
        const torch::Tensor full = torch::cos(torch::arange(2 * 5 * 6, torch::kFloat64)).view({2, 5, 6});
        const Range mine = sequence ? shard(0, 5, 3).ranges(group.rank()).front() : Range{0, 5};
        const ForwardScope scope({.random = RandomContext{.seed = 4, .step = 3}});
        const torch::Tensor expected = dense.forward(full);
        const torch::Tensor got = split.forward(full.narrow(1, mine.begin, mine.size()));
        EXPECT_LE((got - expected.narrow(1, mine.begin, mine.size())).abs().max().item<double>(), 1e-12);
        expected.pow(2).sum().backward();
        got.pow(2).sum().backward();
        const auto close = [](const torch::Tensor& a, const torch::Tensor& b) {
          EXPECT_LE((a - b).abs().max().item<double>(), 1e-11);
        };
        close(split.in->lora_a.grad(), dense.in->lora_a.grad());
        close(split.in->lora_b.grad(), dense.in->lora_b.grad().narrow(0, rows.begin, rows.size()));
        close(split.out->lora_a.grad(), dense.out->lora_a.grad().narrow(1, rows.begin, rows.size()));
        close(split.out->lora_b.grad(), dense.out->lora_b.grad());
      });
}

TEST(AdapterSplit, FactorsLieAsTheLayersOutputDoes) {
  const std::vector<Axis> axes = {{axis::kTensor, 3}};
  const Shape a = {4, 9}, b = {12, 4};
  const auto column = split_of_adapter(Column{.unit = 2, .gradient_sum = GradientSum::kAtSync}, a, b, axes);
  EXPECT_EQ(column.at(kAdapterA).partial_axes, names_of(axes));
  EXPECT_TRUE(column.at(kAdapterA).shards.empty());
  EXPECT_EQ(column.at(kAdapterB).shards.at(0).dim, 0);
  EXPECT_EQ(column.at(kAdapterB).shards.at(0).local_size(0), 4);
  const auto row = split_of_adapter(Row{.gradient_sum = GradientSum::kAtSync}, a, b, axes);
  EXPECT_EQ(row.at(kAdapterA).shards.at(0).dim, 1);
  EXPECT_EQ(row.at(kAdapterB).partial_axes, names_of(axes));
  const auto full = split_of_adapter(SequenceParallel{.gradient_sum = GradientSum::kAtSync}, a, b, axes);
  EXPECT_EQ(full.at(kAdapterA).partial_axes, names_of(axes));
  EXPECT_EQ(full.at(kAdapterB).partial_axes, names_of(axes));
  EXPECT_TRUE(split_of_adapter(FullSequence{}, a, b, axes).empty());
}

}  // namespace
}  // namespace gantry::testing
