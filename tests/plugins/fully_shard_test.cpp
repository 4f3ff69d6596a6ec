// fully_shard() in custom training loops, around modules of LibTorch and of Gantry, compared with the same
// loop on one rank in float64.
#include "gantry/plugins/fully_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/utils/clip_grad.h>

#include "gantry/core/error.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/recompute.h"
#include "gantry/optimizers/fused_adamw.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kPlainLayers = 3, kPlainTokens = 11;

struct PlainLayerImpl : torch::nn::Module {
  PlainLayerImpl(std::int64_t width, std::int64_t inner) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", torch::nn::Linear(width, inner));
    down = register_module("down", torch::nn::Linear(inner, width));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::tanh(up(norm(x)))); }
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(PlainLayer);

struct PlainOptions {
  std::int64_t width = 6, inner = 3;
  bool recomputes = false;
};

// Has parameters outside of its layers: an embedding, a parameter that only some forwards use, one without
// dimensions, and a head.
struct PlainModel : torch::nn::Module {
  explicit PlainModel(const PlainOptions& plain) : options(plain) {
    tokens = register_module("tokens", torch::nn::Embedding(kPlainTokens, options.width));
    for (int i = 0; i < kPlainLayers; ++i) layers->push_back(PlainLayer(options.width, options.inner));
    register_module("layers", layers);
    at_times = register_parameter("at_times", torch::zeros({options.width}, torch::kFloat64));
    scale = register_parameter("scale", torch::ones({}, torch::kFloat64));
    head = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(options.width, 2).bias(false)));
  }
  torch::Tensor forward(const torch::Tensor& ids, bool uses_all = true) {
    torch::Tensor x = tokens(ids) * scale;
    if (uses_all) x = x + at_times;
    for (const auto& layer : *layers) {
      const auto run = [&layer](const std::vector<torch::Tensor>& given) {
        return layer->as<PlainLayer>()->forward(given.front());
      };
      x = options.recomputes ? nn::recompute(run, {x}) : run({x});
    }
    return head(x);
  }
  PlainOptions options;
  torch::nn::Embedding tokens{nullptr};
  torch::nn::ModuleList layers;
  torch::Tensor at_times, scale;
  torch::nn::Linear head{nullptr};
};

std::shared_ptr<PlainModel> plain_model(const PlainOptions& options = {}) {
  const DeferredInit deferred;
  auto model = std::make_shared<PlainModel>(options);
  set_dtype(*model, torch::kFloat64);
  return model;
}

std::shared_ptr<PlainModel> dense_model(const PlainOptions& options = {}) {
  auto model = plain_model(options);
  materialize(*model, 1);
  return model;
}

torch::Tensor ids_of(int step, int samples) {
  return (torch::arange(samples * 4).view({samples, 4}) * 7 + 3 * step) % kPlainTokens;
}

torch::Tensor part_of(const torch::Tensor& full, const ProcessGroup& group) {
  const std::int64_t mine = full.size(0) / group.size();
  return full.narrow(0, mine * group.rank(), mine);
}

torch::Tensor loss_of(PlainModel& model, const torch::Tensor& ids, bool uses_all = true) {
  return model.forward(ids.to(model.head->weight.device()), uses_all).pow(2).mean();
}

void expect_near(const torch::Tensor& expected, const torch::Tensor& actual, const std::string& label) {
  ASSERT_EQ(expected.numel(), actual.numel()) << label;
  if (expected.numel() == 0) return;
  const torch::Tensor difference = expected.detach().reshape({-1}) - actual.detach().cpu().reshape({-1});
  EXPECT_LE(difference.abs().max().item<double>(), 1e-10) << label;
}

// Compares this rank's rows of the dense gradients, and the full values after unshard().
void expect_same_model(torch::nn::Module& dense, FullySharded& sharded, torch::nn::Module& module,
                       const ProcessGroup& group, const std::string& label) {
  for (const auto& item : dense.named_parameters()) {
    const torch::Tensor& gradient = item.value().grad();
    const torch::Tensor shard = sharded.named_parameters().get(item.key());
    if (!gradient.defined() || !shard.defined()) continue;  // undefined for the other names of a tied parameter
    const std::int64_t row = gradient.dim() > 1 ? gradient.size(-1) : 1;
    const Range rows = partition(gradient.numel() / row, 1, group.size(), /*allow_empty=*/true)[group.rank()];
    expect_near(gradient.reshape({-1, row}).narrow(0, rows.begin, rows.size()), shard.grad(),
                label + " gradient " + item.key());
  }
  sharded.unshard();
  const auto full = module.named_parameters();
  for (const auto& item : dense.named_parameters()) expect_near(item.value(), full[item.key()], label + item.key());
  sharded.reshard();
}

// LibTorch lists the parameters of a shared module twice.
torch::optim::AdamW adamw_of(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> each_once;
  for (const auto& parameter : parameters)
    if (std::none_of(each_once.begin(), each_once.end(), [&](const auto& known) { return known.is_same(parameter); }))
      each_once.push_back(parameter);
  return torch::optim::AdamW(each_once, torch::optim::AdamWOptions(1e-2).eps(1e-3));
}

struct ShardedLoop {
  PlainOptions model = {};
  FullyShardOptions sharded = {.units = {"layers.*"}};
  int calls = 1;  // backwards per step
};

void expect_one_ranks_steps(int ranks, const ShardedLoop& how) {
  run_ranks({.data = ranks}, [&](World& world, ProcessGroupMesh& mesh) {
    ProcessGroup& group = mesh["dp"];
    auto dense = dense_model(how.model), model = plain_model(how.model);
    auto options = how.sharded;
    options.device = world.device();
    auto sharded = fully_shard(*model, group, options);
    auto one = adamw_of(dense->parameters()), several = adamw_of(sharded.parameters());
    for (int step = 0; step < 3; ++step) {
      for (int call = 0; call < how.calls; ++call) {
        const torch::Tensor ids = ids_of(step + 10 * call, 2 * ranks);
        const bool uses_all = step != 0;
        const double share = how.sharded.averages ? 1 : 1.0 / ranks;
        loss_of(*dense, ids, uses_all).backward();
        (loss_of(*model, part_of(ids, group), uses_all) * share).backward();
      }
      expect_same_model(*dense, sharded, *model, group, "step " + std::to_string(step) + " ");
      for (auto* optimizer : {&one, &several}) {
        optimizer->step();
        optimizer->zero_grad();
      }
    }
    expect_same_model(*dense, sharded, *model, group, "end ");
  });
}

TEST(FullyShard, EqualsOneRankForEveryNumberOfShards) {
  for (const int ranks : {1, 2, 3, 5})
    for (const int inner : {1, 2, 3}) expect_one_ranks_steps(ranks, {.model = {.inner = inner}});
}

TEST(FullyShard, EqualsOneRankHoweverUnitsAreChosen) {
  for (const FullyShardOptions& sharded :
       {FullyShardOptions{}, FullyShardOptions{.units = {"tokens", "layers.*", "head"}},
        FullyShardOptions{.units = {"layers.*", "layers.*.up"}}, FullyShardOptions{.units = {"head", "layers"}},
        FullyShardOptions{.units = {"layers.*"}, .reshard_after_forward = false, .averages = false}})
    for (const bool recomputes : {false, true})
      expect_one_ranks_steps(3, {.model = {.recomputes = recomputes}, .sharded = sharded, .calls = 2});
}

bool is_here(const torch::Tensor& parameter) { return parameter.storage().nbytes() > 0; }

TEST(FullyShard, AUnitIsUnshardedWhileItIsComputed) {
  run_ranks({.data = 2}, [](World& world, ProcessGroupMesh& mesh) {
    auto model = plain_model();
    auto sharded = fully_shard(*model, mesh["dp"], {.units = {"layers.*"}, .device = world.device()});
    const auto weight = [&](int layer) { return model->layers[layer]->as<PlainLayer>()->up->weight; };
    const auto expect_here = [&](bool outside, std::vector<bool> layers) {
      EXPECT_EQ(is_here(model->head->weight), outside);
      for (int layer = 0; layer < kPlainLayers; ++layer) EXPECT_EQ(is_here(weight(layer)), layers[layer]) << layer;
    };
    expect_here(false, {false, false, false});
    const torch::Tensor loss = loss_of(*model, ids_of(0, 2));
    expect_here(true, {false, false, true});
    loss.backward();
    expect_here(false, {false, false, false});
    sharded.unshard();
    expect_here(true, {true, true, true});
    loss_of(*model, ids_of(0, 2)).backward();
    expect_here(true, {true, true, true});
    sharded.reshard();
    expect_here(false, {false, false, false});
    for (const auto& [name, shard] : sharded.named_parameters()) EXPECT_TRUE(shard.grad().defined()) << name;
    const torch::NoGradGuard no_grad;
    loss_of(*model, ids_of(1, 2));
    expect_here(true, {false, false, true});
  });
}

// Full parameters that a forward left are stale once the local shards are written, by an optimizer step or by
// code that loads weights.
TEST(FullyShard, RowsThatWereWrittenAreGatheredAgain) {
  run_ranks({.data = 3}, [](World& world, ProcessGroupMesh& mesh) {
    ProcessGroup& group = mesh["dp"];
    auto dense = dense_model(), model = plain_model();
    auto sharded = fully_shard(*model, group, {.units = {"layers.*"}, .device = world.device()});
    FusedAdamW one(dense->parameters(), torch::optim::AdamWOptions(1e-2)),
        several(sharded.parameters(), torch::optim::AdamWOptions(1e-2));
    for (int step = 0; step < 2; ++step) {
      const torch::Tensor ids = ids_of(step, 6);
      loss_of(*dense, ids).backward();
      loss_of(*model, part_of(ids, group)).backward();
      {
        const torch::NoGradGuard no_grad;
        expect_near(loss_of(*dense, ids), loss_of(*model, ids), "before the step");
      }
      one.step();
      several.step();
      const c10::InferenceMode inference(world.device().is_cpu());  // the fake device has no inference mode
      expect_near(loss_of(*dense, ids), loss_of(*model, ids), "after the step");
    }
    const torch::NoGradGuard no_grad;
    sharded.unshard();
    for (auto& parameter : dense->parameters()) parameter.mul_(0.5);
    for (auto& shard : sharded.parameters()) shard.mul_(0.5);
    expect_near(loss_of(*dense, ids_of(0, 2)), loss_of(*model, ids_of(0, 2)), "after a write");
  });
}

// Two forwards before their backwards, frozen layers, and a module shared between units.
TEST(FullyShard, FrozenTiedAndSharedOverForwards) {
  run_ranks({.data = 2}, [](World& world, ProcessGroupMesh& mesh) {
    ProcessGroup& group = mesh["dp"];
    auto dense = dense_model(), model = plain_model();
    for (PlainModel* each : {dense.get(), model.get()}) {
      for (auto& parameter : each->layers[1]->parameters()) parameter.set_requires_grad(false);
      each->tokens->weight.set_requires_grad(false);
      auto& last = *each->layers[2]->as<PlainLayer>();
      last.up = last.replace_module("up", each->layers[0]->as<PlainLayer>()->up);
    }
    auto sharded = fully_shard(*model, group, {.units = {"layers.*"}, .device = world.device()});
    auto one = adamw_of(dense->parameters()), several = adamw_of(sharded.parameters());
    for (int step = 0; step < 3; ++step) {
      const torch::Tensor ids = ids_of(step, 4), others = ids_of(step + 5, 4);
      const torch::Tensor first = loss_of(*dense, ids), second = loss_of(*dense, others);
      const torch::Tensor mine = loss_of(*model, part_of(ids, group)), next = loss_of(*model, part_of(others, group));
      for (const torch::Tensor& loss : {first, second, mine, next}) loss.backward();
      expect_same_model(*dense, sharded, *model, group, "step " + std::to_string(step) + " ");
      EXPECT_FALSE(sharded.named_parameters().at("layers.1.up.weight").grad().defined());
      for (auto* optimizer : {&one, &several}) {
        optimizer->step();
        optimizer->zero_grad();
      }
    }
  });
}

// The norm covers the shards of all ranks, with and without replicas of shards.
TEST(FullyShard, ClipsByTheNormOfAllRanks) {
  for (const Layout& layout : {Layout{.data = 1}, Layout{.data = 3}, Layout{.data = 2, .tensor = 2}})
    run_ranks(layout, [&](World& world, ProcessGroupMesh& mesh) {
      const bool has_replicas = layout.tensor > 1;
      ProcessGroup& group = has_replicas ? mesh["tp"] : mesh["dp"];
      auto dense = dense_model(), model = plain_model();
      auto sharded = fully_shard(
          *model, group,
          {.units = {"layers.*"}, .replicas = has_replicas ? &mesh["dp"] : nullptr, .device = world.device()});
      for (const double most : {1e-3, 1e3}) {
        const torch::Tensor ids = ids_of(0, 2 * mesh.world_group().size());
        loss_of(*dense, ids).backward();
        loss_of(*model, part_of(ids, mesh.world_group())).backward();
        const double expected = torch::nn::utils::clip_grad_norm_(dense->parameters(), most);
        EXPECT_NEAR(sharded.clip_grad_norm(most), expected, 1e-10);
        expect_same_model(*dense, sharded, *model, group, "clipped ");
        dense->zero_grad();
        for (auto& shard : sharded.parameters()) shard.mutable_grad().reset();
      }
    });
}

struct SplitLayerImpl : torch::nn::Module {
  SplitLayerImpl() {
    up = register_module("up", nn::Linear(6, 10));
    down = register_module("down", nn::Linear(10, 6));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::tanh(up(x))); }
  nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(SplitLayer);

struct SplitModel : torch::nn::Module {
  SplitModel() {
    for (int i = 0; i < 2; ++i) layers->push_back(SplitLayer());
    register_module("layers", layers);
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& layer : *layers) x = layer->as<SplitLayer>()->forward(x);
    return x;
  }
  torch::nn::ModuleList layers;
};

TEST(FullyShard, ComposesWithParallelizeModule) {
  run_ranks({.data = 2, .tensor = 2}, [](World& world, ProcessGroupMesh& mesh) {
    const auto build = [] {
      const DeferredInit deferred;
      auto model = std::make_shared<SplitModel>();
      set_dtype(*model, torch::kFloat64);
      return model;
    };
    auto dense = build(), model = build();
    materialize(*dense, 1);
    const auto shard = parallelize_module(*model, mesh["tp"], {{"layers.*.up", Column{}}, {"layers.*.down", Row{}}});
    auto sharded = fully_shard(*model, mesh["dp"], {.units = {"layers.*"}, .device = world.device()});
    EXPECT_EQ(sharded.named_parameters().at("layers.0.up.weight").sizes(),
              (std::vector<std::int64_t>{mesh["dp"].rank() == 0 ? 3 : 2, 6}));
    auto one = adamw_of(dense->parameters()), several = adamw_of(sharded.parameters());
    for (int step = 0; step < 3; ++step) {
      const torch::Tensor x = torch::sin(torch::arange(4 * 6, torch::kFloat64) * (1.5 + step)).view({4, 6});
      const torch::Tensor expected = dense->forward(x).pow(2).mean();
      const torch::Tensor mine = model->forward(part_of(x, mesh["dp"]).to(world.device())).pow(2).mean();
      torch::Tensor mean = mine.detach().clone();
      mesh["dp"].all_reduce(mean).wait();
      expect_near(expected * 2, mean, "loss");
      expected.backward();
      mine.backward();
      const double norm = torch::nn::utils::clip_grad_norm_(dense->parameters(), 0.1);
      EXPECT_NEAR(sharded.clip_grad_norm(0.1, shard, mesh["tp"]), norm, 1e-10);
      for (auto* optimizer : {&one, &several}) {
        optimizer->step();
        optimizer->zero_grad();
      }
    }
    sharded.unshard();
    const auto& up = model->layers[1]->as<SplitLayer>()->up->weight;
    expect_near(dense->layers[1]->as<SplitLayer>()->up->weight.narrow(0, 5 * mesh["tp"].rank(), 5), up, "columns");
  });
}

// In bfloat16, 256 + 1 is 256.
TEST(FullyShard, LowGradientsAreSummedInFloat32) {
  run_ranks({.data = 3}, [](World& world, ProcessGroupMesh& mesh) {
    torch::nn::Linear model(torch::nn::LinearOptions(1, 3).bias(false));
    model->to(torch::kBFloat16);
    auto sharded = fully_shard(*model, mesh["dp"], {.averages = false, .device = world.device()});
    const torch::Tensor x = torch::full({1, 1}, mesh["dp"].rank() == 0 ? 256.0 : 1.0, torch::kBFloat16);
    model(x.to(world.device())).sum().backward();
    const torch::Tensor gradient = sharded.parameters().front().grad();
    EXPECT_EQ(gradient.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(gradient.sum().item<double>(), 258);
  });
}

// Existing values are taken from the first rank.
TEST(FullyShard, BeginsWithTheFirstRanksValues) {
  run_ranks({.data = 3}, [](World& world, ProcessGroupMesh& mesh) {
    torch::nn::Linear model(4, 5);
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : model->parameters()) parameter.fill_(mesh["dp"].rank() + 1);
    }
    auto sharded = fully_shard(*model, mesh["dp"], {.device = world.device()});
    sharded.unshard();
    EXPECT_EQ(model->weight.sum().item<double>(), 20);
    EXPECT_EQ(model->bias.sum().item<double>(), 5);
  });
}

template <class Call>
std::string shard_refusal(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(FullyShard, WhatItCantIsRefusedByName) {
  run_ranks({.data = 2}, [](World& world, ProcessGroupMesh& mesh) {
    auto model = plain_model();
    EXPECT_EQ(shard_refusal([&] { fully_shard(*model, mesh["dp"], {.units = {"layer"}}); }),
              "fully_shard: no module matches 'layer'; expected paths of modules, with * for any one part of a path; "
              "did you mean "
              "'layers'?");
    auto sharded = fully_shard(*model, mesh["dp"], {.units = {"layers.*"}, .device = world.device()});
    EXPECT_THAT(shard_refusal([&] { fully_shard(*model, mesh["dp"]); }), HasSubstr("is already sharded"));
    loss_of(*model, ids_of(0, 2)).backward();
    torch::optim::SGD wrong(model->parameters(), 0.1);
    EXPECT_THAT(shard_refusal([&] { wrong.step(); }), HasSubstr("this rank's shards"));
    EXPECT_EQ(shard_refusal([&] { torch::nn::utils::clip_grad_norm_(sharded.parameters(), 1.0); }),
              "fully_shard: the norm of a gradient would cover only one rank's shard; expected the norm of all ranks' "
              "shards; call clip_grad_norm() of the result of fully_shard(), or use square().sum() of the local shard");
  });
}

}  // namespace
}  // namespace gantry::testing
