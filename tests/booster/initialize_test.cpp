// Models made tensor-parallel by one call, against the same models on one device.
#include "gantry/booster/initialize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/models/bert_family.h"
#include "gantry/models/gpt2_family.h"
#include "gantry/models/llama_family.h"
#include "gantry/tensors/deferred_init.h"
#include "program.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::shared_ptr<models::LlamaImpl> llama() {
  const DeferredInit deferred;
  auto model = std::make_shared<models::LlamaImpl>(models::llama_config({{"hidden_size", 24},
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

torch::Tensor loss_of(models::LlamaImpl& model) {
  const torch::Tensor logits = model.forward({{"input_ids", ids()}}).at("logits");
  return torch::nn::functional::cross_entropy(logits.view({-1, 53}), (ids().view(-1) + 1) % 53);
}

// Three steps of a plain loop; the optimizer was built before the model was split.
std::vector<double> train(models::LlamaImpl& model, torch::optim::Optimizer& optimizer) {
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
        for (const auto& placement : made.placements) {  // replicas end equal to the bit
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
    const auto made = initialize(*model, path);
    EXPECT_EQ(model->embed_tokens->weight.size(0) + (made.mesh->coordinate("tp") == 0 ? 26 : 27), 53);
    EXPECT_EQ(model->forward({{"input_ids", ids()}}).at("logits").sizes(), (at::IntArrayRef{3, 7, 53}));
  });
}

TEST(Acceptance, C2WrongSizesAreRefused) {
  const ScratchFolder scratch;
  for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
           {"{\"model_parallelism\": {\"tensor_parallel_size\": 0}}", "is 0; expected a positive whole number"},
           {"{\"model_parallelism\": {\"tensor_parallel_size\": \"2\"}}", "a positive whole number"},
           {"{\"model_parallelism\": {\"tensor_parallel_sise\": 2}}", "is unknown; expected tensor_parallel_size"},
           {"{\"model_parallelism\": {}}", "nothing in it"},
           {"{\"model_parallelism\": {\"tensor_parallel_size\": 4}}", "tensor 4, but the job's mesh is"},
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
    std::int64_t whole = 0, replicated = 0, held = 0;
    for (const auto& placement : made.placements) {
      std::int64_t elements = 1;
      for (const auto size : placement.global_shape) elements *= size;
      (placement.along("tp").sharded() ? whole : replicated) += elements;
    }
    for (const auto& parameter : split->parameters()) held += parameter.numel();
    EXPECT_LE(held, whole / 2 + replicated + 53 * 24 + 24 * 37);  // sizes that do not divide
  });
}

}  // namespace
}  // namespace gantry::testing
