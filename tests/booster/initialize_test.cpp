// Compares models that one call has made tensor-parallel with the same models on one device.
#include "gantry/booster/initialize.h"

#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <torch/nn/functional/loss.h>

#include "gantry/checkpoint/checkpoint.h"
#include "gantry/core/error.h"
#include "gantry/models/bert_family.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::shared_ptr<models::DecoderImpl> llama() {
  const DeferredInit deferred;
  auto model = std::make_shared<models::DecoderImpl>(models::decoder_spec("llama", {{"hidden_size", 24},
                                                                                    {"intermediate_size", 37},
                                                                                    {"num_hidden_layers", 2},
                                                                                    {"num_attention_heads", 6},
                                                                                    {"num_key_value_heads", 2},
                                                                                    {"vocab_size", 53},
                                                                                    {"max_position_embeddings", 16},
                                                                                    {"attention_bias", true}}));
  set_dtype(*model, torch::kFloat64);
  return model;
}

const torch::Tensor& ids() {
  static const torch::Tensor all = (torch::arange(3 * 7).view({3, 7}) * 5) % 53;
  return all;
}

torch::Tensor loss_of(models::DecoderImpl& model) {
  const torch::Tensor logits = model.forward({{"input_ids", ids()}}).at("logits");
  return torch::nn::functional::cross_entropy(logits.view({-1, 53}), (ids().view(-1) + 1) % 53);
}

// Three steps of a plain loop; the optimizer was built before the model was split.
std::vector<double> train(models::DecoderImpl& model, torch::optim::Optimizer& optimizer) {
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = loss_of(model);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

std::vector<double> train_dense() {
  auto model = llama();
  materialize(*model, 1);
  torch::optim::Adam optimizer(model->parameters(), 1e-2);
  return train(*model, optimizer);
}

TEST(Acceptance, C7OptimizerBuiltBeforeInitializeTrainsAsOnOneDevice) {
  const ScratchFolder scratch;
  const auto expected = train_dense();
  for (const int ranks : {1, 2, 3, 4})
    for (const bool sequence_parallel : {false, true}) {
      const std::string path =
          scratch.write("gantry.yaml", "parallel: {tensor: " + std::to_string(ranks) +
                                           (sequence_parallel ? ", sequence_parallel: true" : "") + "}\n");
      run_ranks(ranks, [&](World&, ProcessGroupMesh& mesh) {
        auto model = llama();
        torch::optim::Adam optimizer(model->parameters(), 1e-2);
        const auto made = initialize(*model, path);
        const auto losses = train(*model, optimizer);
        for (std::size_t step = 0; step < losses.size(); ++step) EXPECT_NEAR(losses[step], expected[step], 1e-10);
        for (const auto& placement :
             made.boosted.model->stage_module().all_placements) {  // replicas must stay bitwise identical
          if (placement.along("tp").sharded()) continue;
          const torch::Tensor mine = model->named_parameters()[placement.name].detach();
          torch::Tensor largest = mine.clone();
          mesh["tp"].all_reduce(largest, ReduceOp::kMax).wait();
          EXPECT_TRUE(torch::equal(largest, mine)) << placement.name;
        }
      });
    }
}

TEST(Acceptance, C1OslosOwnKeysWithAComment) {
  const ScratchFolder scratch;
  const std::string path =
      scratch.write("oslo.json", "// oslo-config.json\n{\"model_parallelism\": {\"tensor_parallel_size\": 2}}\n");
  run_ranks(2, [&](World&, ProcessGroupMesh&) {
    auto model = llama();
    auto made = initialize(*model, path);
    EXPECT_EQ(model->named_parameters()["embed_tokens.weight"].size(0) +
                  (made.booster.mesh().coordinate("tp") == 0 ? 26 : 27),
              53);
    EXPECT_EQ(model->forward({{"input_ids", ids()}}).at("logits").sizes(), (at::IntArrayRef{3, 7, 53}));
  });
}

TEST(Acceptance, C2WrongSizesAreRefused) {
  const ScratchFolder scratch;
  for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
           {"{\"model_parallelism\": {\"tensor_parallel_size\": 0}}", "is 0; expected a positive whole number"},
           {"{\"model_parallelism\": {\"tensor_parallel_size\": \"2\"}}", "a positive whole number"},
           {"{\"model_parallelism\": {\"tensor_parallel_sise\": 2}}", "unknown key; expected tensor_parallel_size"},
           {"{\"model_parallelism\": {}}", "this section is empty"},
           {"{\"model_parallelism\": {\"tensor_parallel_size\": 4}}", "parallel.tensor is 4, but the job's mesh is"},
           {"{\"model_parallelism\": {\"tensor_parallel_size\": 2, \"pipeline_parallel_size\": 2}}",
            "1 for initialize"},
           {"parallel: {tensor: 2, tensr: 1}\n", "did you mean 'tensor'?"}}) {
    const std::string path = scratch.write("config", text);
    run_ranks(2, [&](World&, ProcessGroupMesh&) {
      try {
        auto model = llama();
        initialize(*model, path);
        ADD_FAILURE() << text;
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr(said)) << text;
      }
    });
  }
}

TEST(Initialize, RefusesASecondTimeAndAModelWithoutAPolicy) {
  const ScratchFolder scratch;
  const std::string path = scratch.write("gantry.yaml", "parallel: {tensor: 1}\n");
  run_ranks(1, [&](World&, ProcessGroupMesh&) {
    auto model = llama();
    const auto made = initialize(*model, path);
    EXPECT_THROW(initialize(*model, path), ConfigError);
    auto other = std::make_shared<torch::nn::LinearImpl>(2, 2);
    EXPECT_THROW(initialize(*other, path), ConfigError);
  });
  auto model = llama();
  EXPECT_THROW(initialize(*model, path), UsageError);
}

TEST(Acceptance, C16ResidentBytesFallWithTheRanks) {
  const ScratchFolder scratch;
  const std::string path = scratch.write("gantry.yaml", "parallel: {tensor: 2}\n");
  run_ranks(2, [&](World&, ProcessGroupMesh&) {
    auto dense = llama(), split = llama();
    const auto made = initialize(*split, path);
    std::int64_t full = 0, replicated = 0, held = 0;
    for (const auto& placement : made.boosted.model->stage_module().all_placements) {
      std::int64_t elements = 1;
      for (const auto size : placement.global_shape) elements *= size;
      (placement.along("tp").sharded() ? full : replicated) += elements;
    }
    for (const auto& parameter : split->parameters()) held += parameter.numel();
    EXPECT_LE(held, full / 2 + replicated + 53 * 24 + 24 * 37);  // sizes that are not divisible
  });
}

// --- A boosted optimizer in a custom training loop

struct OwnLoop {
  Layout layout;
  int zero = 0;
  bool sequence_parallel = false;
};

std::string own_loop_yaml(const OwnLoop& loop) {
  return fmt::format(
      "parallel: {{tensor: {}, data: {}, zero: {}, sequence_parallel: {}}}\noptimizer: {{clip_grad_norm: 0.5}}\n"
      "train: {{audit_every: 1}}\n",
      loop.layout.tensor, loop.layout.data, loop.zero, loop.sequence_parallel);
}

// The losses of three steps, for a global batch of three samples.
std::vector<double> train_own_loop(const OwnLoop& loop) {
  const ScratchFolder scratch;
  const std::string path = scratch.write("gantry.yaml", own_loop_yaml(loop));
  std::vector<double> all;
  run_ranks(loop.layout, [&](World& world, ProcessGroupMesh&) {
    auto model = llama();
    auto [booster, boosted] = initialize(
        *model, path, {.optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), 1e-2), .plan = {}});
    ProcessGroup& replicas = booster.mesh()["dp"];
    const auto [begin, end] = split_evenly(3, replicas.size())[replicas.rank()];
    std::vector<double> losses;
    for (int step = 0; step < 3; ++step) {
      const torch::Tensor mine = ids().slice(0, begin, end);
      const torch::Tensor logits = model->forward({{"input_ids", mine}}).at("logits");
      const torch::Tensor loss =
          torch::nn::functional::cross_entropy(logits.view({-1, 53}), (mine.reshape({-1}) + 1) % 53);
      if (step == 1) model->zero_grad();  // user code may do this; backward() then allocates new gradients
      loss.backward();
      booster.sync_gradients(boosted);
      EXPECT_GT(boosted.optimizer->grad_norm(), 0.5) << "clipping matters";
      booster.plugin().audit(boosted);
      EXPECT_TRUE(boosted.optimizer->step());
      boosted.optimizer->zero_grad();
      losses.push_back(all_reduce_number(replicas, loss.item<double>()) / replicas.size());
    }
    if (world.is_main()) all = losses;
  });
  return all;
}

TEST(OwnLoopOptimizer, TrainsAsOnOneDeviceInEveryLayout) {
  const auto expected = train_own_loop({});
  ASSERT_EQ(expected.size(), 3u);
  EXPECT_LT(expected.back(), expected.front());
  for (const OwnLoop& loop : {OwnLoop{{.data = 3}}, OwnLoop{{.data = 3}, 1}, OwnLoop{{.tensor = 3}, 0, true},
                              OwnLoop{{.data = 3, .tensor = 2}, 1, true}}) {
    const auto losses = train_own_loop(loop);
    ASSERT_EQ(losses.size(), 3u) << own_loop_yaml(loop);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses[i], expected[i], 1e-10) << own_loop_yaml(loop) << i;
  }
}

// Runs one model in both kinds of loops. execute_pipeline must give the gradients of a plain backward.
TEST(OwnLoopOptimizer, ExecutePipelineRunsTheModelToo) {
  const ScratchFolder scratch;
  for (const OwnLoop& loop : {OwnLoop{{.tensor = 3}, 0, true}, OwnLoop{{.data = 3}, 1}}) {
    const std::string path = scratch.write("gantry.yaml", own_loop_yaml(loop));
    run_ranks(loop.layout, [&](World&, ProcessGroupMesh&) {
      auto model = llama();
      auto [booster, boosted] = initialize(
          *model, path, {.optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), 1e-2), .plan = {}});
      ProcessGroup& replicas = booster.mesh()["dp"];
      const auto [begin, end] = split_evenly(3, replicas.size())[replicas.rank()];
      const torch::Tensor mine = ids().slice(0, begin, end), labels = (mine + 1) % 53;
      torch::nn::functional::cross_entropy(model->forward({{"input_ids", mine}}).at("logits").view({-1, 53}),
                                           labels.reshape({-1}))
          .backward();
      booster.sync_gradients(boosted);
      const double own = boosted.optimizer->grad_norm();
      boosted.optimizer->zero_grad();
      boosted.criterion = cross_entropy();
      booster.execute_pipeline(make_batch({{"input_ids", mine}, {"labels", labels}}), boosted);
      EXPECT_NEAR(boosted.optimizer->grad_norm(), own, 1e-10);
    });
  }
}

TEST(OwnLoopOptimizer, MistakesAreNamed) {
  const ScratchFolder scratch;
  const std::string path = scratch.write("gantry.yaml", "parallel: {data: 2}\n"),
                    two = scratch.write("two.yaml", "parallel: {data: 2, zero: 2}\n");
  run_ranks(Layout{.data = 2}, [&](World&, ProcessGroupMesh&) {
    auto model = llama();
    auto [booster, boosted] = initialize(
        *model, path, {.optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), 1e-2), .plan = {}});
    loss_of(*model).backward();
    const auto said = [](const auto& call) -> std::string {
      try {
        call();
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_THAT(said([&] { boosted.optimizer->step(); }), HasSubstr("sync_gradients(boosted) after the backward"));
    booster.sync_gradients(boosted);
    EXPECT_THAT(said([&] { booster.sync_gradients(boosted); }), HasSubstr("already reduced over the ranks"));
    auto other = llama();
    EXPECT_THAT(said([&] { initialize(*other, two); }),
                HasSubstr("is not supported if the program calls the model's forward itself; expected 0 or 1"));
  });
  run_ranks(Layout{.pipeline = 2}, [&](World&, ProcessGroupMesh&) {
    auto model = llama();
    EXPECT_THROW(initialize(*model, path), ConfigError);
  });
}

// --- A model without a policy

struct MlpImpl : torch::nn::Module {
  MlpImpl() {
    scale = register_parameter("scale", torch::ones({6}, torch::kFloat64));
    up = register_module("up", nn::Linear(6, 10));
    down = register_module("down", nn::Linear(10, 6));
    set_dtype(*this, torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& x) { return down(torch::relu(up(x * scale))); }
  torch::Tensor scale;
  nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Mlp);

// Trains for `steps` steps and returns the losses. Resumes from the checkpoint if it exists, else saves it at
// the end.
std::vector<double> train_by_plan(const Layout& layout, const std::string& checkpoint, int steps) {
  std::vector<double> all;
  run_ranks(layout, [&](World& world, ProcessGroupMesh&) {
    Mlp model = [] {
      const DeferredInit deferred;
      return Mlp();
    }();
    Config config;
    config.parallel.tensor = layout.tensor;
    auto [booster, boosted] = initialize(model, config,
                                         {.optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), 1e-2),
                                          .plan = ShardPlan{{"up", Column{}}, {"down", Row{}}}});
    const bool goes_on = std::filesystem::exists(checkpoint);
    if (goes_on) load_checkpoint(checkpoint + "/step-000002", booster.state(boosted), booster.mesh());
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      const torch::Tensor x = torch::sin(torch::arange(24, torch::kFloat64)).view({4, 6});
      const torch::Tensor loss = torch::mse_loss(model(x), x.flip(1));
      loss.backward();
      booster.sync_gradients(boosted);
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
      losses.push_back(loss.item<double>());
    }
    if (!goes_on) {
      SaveRequest request;
      request.directory = checkpoint;
      request.step = 2;
      request.model_config = json::object();
      request.progress = request.user = json::object();
      save_checkpoint(request, booster.state(boosted), booster.mesh());
    }
    try {
      booster.execute_pipeline(make_batch({{"x", torch::ones({2, 6})}}), boosted, {.forward_only = true});
      ADD_FAILURE();
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("which has no forward for stages"));
    }
    if (world.is_main()) all = losses;
  });
  return all;
}

TEST(InitializeByPlan, ItsCheckpointGoesOnInAnotherLayout) {
  const ScratchFolder scratch;
  const auto expected = train_by_plan({}, scratch / "whole", 4);
  ASSERT_EQ(expected.size(), 4u);
  auto losses = train_by_plan({.tensor = 2}, scratch / "half", 2);
  for (const double loss : train_by_plan({.tensor = 3}, scratch / "half", 2)) losses.push_back(loss);
  ASSERT_EQ(losses.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(losses[i], expected[i], 1e-12) << i;
}

}  // namespace
}  // namespace gantry::testing
