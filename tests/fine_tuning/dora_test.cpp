// DoRA: the arithmetic of a layer, the initial magnitudes, dropout in every layout, and the errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/format/adapter_config.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/linear.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

const std::string kDoraCase = GANTRY_SOURCE_DIR "/tests/golden/lora/dora";

torch::Tensor waves(const std::vector<std::int64_t>& shape, double phase) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return torch::sin(torch::arange(count, torch::kFloat64) * 1.3 + phase).view(shape);
}

// Sets the factors to fixed values. `rows` and `columns`: this rank's part.
void set_factors(nn::Linear& layer, const Range& rows, const Range& columns) {
  const torch::NoGradGuard no_grad;
  const std::int64_t in = layer->options.in_features(), out = layer->options.out_features();
  layer->lora_a.copy_(waves({2, in}, 1).narrow(1, columns.begin, columns.size()));
  layer->lora_b.copy_(waves({out, 2}, 2).narrow(0, rows.begin, rows.size()));
  layer->lora_magnitude.copy_(waves({out}, 3).narrow(0, rows.begin, rows.size()) + 2);
}

void expect_near(const torch::Tensor& a, const torch::Tensor& b, double tolerance = 1e-11) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LE((a - b).abs().max().item<double>(), tolerance);
}

// The paper's formula, with the norm as a constant in the backward.
TEST(DoraLayer, IsItsMergedWeight) {
  nn::Linear layer(5, 4);
  layer->to(torch::kFloat64);
  layer->add_adapter({.rank = 2, .scale = 1.75, .dora = true});
  materialize(*layer, 1);
  expect_near(layer->lora_magnitude.detach(), layer->weight.detach().square().sum(1).sqrt());
  set_factors(layer, {0, 4}, {0, 5});
  layer->weight.set_requires_grad(false);
  const torch::Tensor input = waves({3, 5}, 4);
  const auto leaf = [](const torch::Tensor& from) { return from.detach().clone().requires_grad_(); };
  const torch::Tensor a = leaf(layer->lora_a), b = leaf(layer->lora_b), magnitude = leaf(layer->lora_magnitude);
  const torch::Tensor sum = layer->weight + 1.75 * torch::mm(b, a);
  const torch::Tensor norm = sum.detach().square().sum(1).sqrt();
  const torch::Tensor expected =
      torch::nn::functional::linear(input, (magnitude / norm).unsqueeze(1) * sum, layer->bias.detach());
  const torch::Tensor got = layer(input);
  expect_near(got, expected);
  got.pow(2).sum().backward();
  expected.pow(2).sum().backward();
  expect_near(layer->lora_a.grad(), a.grad());
  expect_near(layer->lora_b.grad(), b.grad());
  expect_near(layer->lora_magnitude.grad(), magnitude.grad());
}

// As in PEFT, the base's output uses the full input, and
// the changes by the adapter use the input after dropout.
TEST(DoraLayer, DropsTheInputOfEveryChange) {
  nn::Linear layer(64, 4);
  layer->to(torch::kFloat64);
  layer->add_adapter({.rank = 2, .scale = 0.5, .dropout = 0.5, .dora = true});
  materialize(*layer, 1);
  set_global_names(*layer);
  const torch::NoGradGuard no_grad;
  const torch::Tensor input = waves({3, 64}, 4);
  const ForwardScope scope({.random = RandomContext{.seed = 4, .step = 3}});
  const torch::Tensor plain = torch::nn::functional::linear(input, layer->weight, layer->bias);
  expect_near(layer(input), plain);  // B is zero, and the magnitudes are the norms
  set_factors(layer, {0, 4}, {0, 64});
  const torch::Tensor trained = layer(input);
  layer->eval();
  const torch::Tensor evaluated = layer(input);
  const torch::Tensor sum = layer->weight + 0.5 * torch::mm(layer->lora_b, layer->lora_a);
  const torch::Tensor ratio = layer->lora_magnitude / sum.square().sum(1).sqrt();
  expect_near(evaluated, torch::nn::functional::linear(input, ratio.unsqueeze(1) * sum, layer->bias));
  EXPECT_GT((trained - evaluated).abs().max().item<double>(), 1e-3);
  // With one input that is not zero, a dropped change vanishes, and a kept one is doubled.
  const torch::Tensor one = torch::zeros({32, 64}, torch::kFloat64);
  one.select(1, 7).fill_(1);
  const torch::Tensor base = torch::nn::functional::linear(one, layer->weight, layer->bias), full = layer(one) - base;
  layer->train();
  const torch::Tensor change = layer(one) - base;
  int dropped = 0;
  for (int row = 0; row < 32; ++row) {
    const bool is_dropped = change[row].abs().max().item<double>() < 1e-12;
    dropped += is_dropped ? 1 : 0;
    expect_near(change[row], is_dropped ? torch::zeros_like(change[row]) : 2 * full[row]);
  }
  EXPECT_GT(dropped, 0);
  EXPECT_LT(dropped, 32);
}

struct TwoDoraLayers : torch::nn::Module {
  explicit TwoDoraLayers(double dropout) {
    in = register_module("in", nn::Linear(6, 7));
    out = register_module("out", nn::Linear(7, 5));
    set_dtype(*this, torch::kFloat64);
    for (nn::Linear* layer : {&in, &out})
      (*layer)->add_adapter({.rank = 2, .scale = 1.5, .dropout = dropout, .dora = true});
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::tanh(in(x))); }
  nn::Linear in{nullptr}, out{nullptr};
};

std::shared_ptr<TwoDoraLayers> two_dora_layers(double dropout) {
  const DeferredInit deferred;
  return std::make_shared<TwoDoraLayers>(dropout);
}

// Without boost(), the backward itself reduces the partial sums.
TEST(DoraLayer, SplitModulesOfOnesOwnSumInTheBackward) {
  for (const double dropout : {0.0, 0.4})
    for (const bool sequence : {false, true})
      run_ranks(3, [&](World&, ProcessGroupMesh& mesh) {
        ProcessGroup& group = mesh["tp"];
        const auto dense = two_dora_layers(dropout), split = two_dora_layers(dropout);
        Column column;
        Row row;
        if (sequence) column.input = Shard{1}, row.output = Shard{1};
        parallelize_module(*split, group, {{"in", column}, {"out", row}});
        for (TwoDoraLayers* model : {dense.get(), split.get()}) {
          materialize(*model, 1);
          set_global_names(*model);
        }
        const Range rows = shard(0, 7, 3).ranges(group.rank()).front();
        set_factors(dense->in, {0, 7}, {0, 6});
        set_factors(dense->out, {0, 5}, {0, 7});
        set_factors(split->in, rows, {0, 6});
        set_factors(split->out, {0, 5}, rows);
        const Range mine = sequence ? shard(0, 5, 3).ranges(group.rank()).front() : Range{0, 5};
        const torch::Tensor full = waves({2, 5, 6}, 0);
        const ForwardScope scope({.random = RandomContext{.seed = 4, .step = 3}});
        const torch::Tensor expected = dense->forward(full);
        const torch::Tensor got = split->forward(full.narrow(1, mine.begin, mine.size()));
        expect_near(got, expected.narrow(1, mine.begin, mine.size()));
        expected.pow(2).sum().backward();
        got.pow(2).sum().backward();
        const auto part = [&](const torch::Tensor& grad) { return grad.narrow(0, rows.begin, rows.size()); };
        expect_near(split->in->lora_magnitude.grad(), part(dense->in->lora_magnitude.grad()));
        expect_near(split->in->lora_b.grad(), part(dense->in->lora_b.grad()));
        expect_near(split->in->lora_a.grad(), dense->in->lora_a.grad());
        expect_near(split->out->lora_magnitude.grad(), dense->out->lora_magnitude.grad());
        expect_near(split->out->lora_b.grad(), dense->out->lora_b.grad());
        expect_near(split->out->lora_a.grad(), dense->out->lora_a.grad().narrow(1, rows.begin, rows.size()));
      });
}

// New adapters on the reference case's base, with three updates.
Config dora_config(const LoraLayout& how, double dropout) {
  Config config = layout_config(how.layout);
  config.model.path = kDoraCase;
  config.lora = {
      .r = 3, .alpha = 5, .dropout = dropout, .target_modules = {"all-linear"}, .rslora = true, .use_dora = true};
  train_in_layout(config, how);
  return resolve_model(std::move(config));
}

TEST(DoraGrid, MagnitudesStartAsTheNormsOfTheBase) {
  const TensorDict base = read_safetensors(kDoraCase + "/model.safetensors");
  for (const LoraLayout& how : {LoraLayout{}, LoraLayout{.layout = {.pipeline = 2, .tensor = 3}},
                                LoraLayout{.layout = {.data = 2, .tensor = 2}, .zero = 3}}) {
    const LoraRun run = run_from_base(dora_config(how, 0), 0);
    int found = 0;
    for (const auto& [name, values] : run.weights) {
      if (!name.ends_with(kAdapterMagnitude)) continue;
      ++found;
      const torch::Tensor weight = base.at("model." + adapted_layer(name) + ".weight").to(torch::kFloat64);
      expect_near(values, weight.square().sum(1).sqrt(), 1e-12);
    }
    EXPECT_EQ(found, 2 * 7) << describe(how);
  }
}

void expect_every_layout(double dropout) {
  const LoraRun one = run_from_base(dora_config({}, dropout));
  EXPECT_EQ(one.gradients.size(), 2u * 3 * 7);
  const std::vector<LoraLayout> few = {
      {.layout = {.tensor = 3}, .sequence_parallel = true},
      {.layout = {.tensor = 2}, .sequence_parallel = true, .recompute = "full"},
      {.layout = {.pipeline = 2, .tensor = 3}, .recompute = "parts"},
      {.layout = {.pipeline = 2}, .schedule = "zb_h1"},
      {.layout = {.data = 2}, .zero = 1},
      {.layout = {.data = 3}, .zero = 2},
      {.layout = {.data = 3}, .zero = 3, .gather = "microbatch"},
      {.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 3, .schedule = "zb_h1"},
      {.layout = {.data = 2, .context = 2}, .zero = 3, .gather = "step", .recompute = "full"},
      {.layout = {.tensor = 2, .context = 2}, .sequence_parallel = true}};
  for (const auto& how : is_long_form() ? all_lora_layouts() : few) {
    expect_same_run(one, run_from_base(dora_config(how, dropout)), describe(how));
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(DoraGrid, EveryLayoutHasOneRanksNumbers) { expect_every_layout(0); }
TEST(DoraGrid, DropoutToo) { expect_every_layout(0.3); }

TEST(DoraGrid, RunsGoOnToTheSameBits) {
  const ScratchFolder scratch;
  const Config config = dora_config({.layout = {.data = 2, .tensor = 2}, .zero = 1}, 0.2);
  const LoraRun full = run_from_base(config, 4);
  run_from_base(config, 2, {}, [&](Rig& rig) {
    save_checkpoint({.directory = scratch.path(), .step = 2}, rig.plugin->state(rig.boosted), rig.plugin->mesh());
  });
  const auto resume = [&](Rig& rig) {
    load_checkpoint(scratch / "step-000002", rig.plugin->state(rig.boosted), rig.plugin->mesh());
  };
  const LoraRun rest = run_from_base(config, 2, resume, {}, 2);
  EXPECT_EQ(rest.losses.back(), full.losses.back());
  for (const auto& [name, values] : full.weights) EXPECT_TRUE(torch::equal(values, rest.weights.at(name))) << name;
  const LoraRun elsewhere = run_from_base(dora_config({.layout = {.pipeline = 2}}, 0.2), 2, resume, {}, 2);
  EXPECT_NEAR(elsewhere.losses.back(), full.losses.back(), 1e-10);
  expect_close(full.weights, elsewhere.weights);
}

TEST(DoraGrid, InBfloat16LossesFollowThoseOfFloat64) {
  const LoraRun expected = run_from_base(dora_config({}, 0), 4);
  Config config = dora_config({.layout = {.tensor = 2}, .sequence_parallel = true}, 0);
  config.precision = "bfloat16";
  const LoraRun run = run_from_base(config, 4);
  for (std::size_t step = 0; step < 4; ++step) EXPECT_NEAR(run.losses[step], expected.losses[step], 0.03);
}

TEST(DoraRefusals, OneLineEach) {
  Config config = lora_config({});
  config.lora.use_dora = true;
  on_layout<int>(config, [&](World& world) {
    Rig rig(world, config);
    EXPECT_THAT(thrown_by([&] { load_weights(config, rig.boosted, rig.plugin->mesh()); }),
                HasSubstr("lora.use_dora: layers.0.self_attn.q_proj has only initial weights, because model.path is "
                          "not set"));
    return 0;
  });
  config = dora_config({}, 0);
  config.lora.target_modules = {"embed_tokens"};
  EXPECT_THAT(thrown_by([&] { build_model(config); }),
              HasSubstr("lora.use_dora: model.embed_tokens is not a linear layer"));
  EXPECT_THAT(thrown_by([&] { resolve_lora({.use_dora = true, .path = kDoraCase + "/../qv/adapter"}); }),
              HasSubstr("lora.use_dora: the value differs from the one in"));
}

}  // namespace
}  // namespace gantry::testing
