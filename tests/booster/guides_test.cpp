// Follows the steps of Lightning's and OSLO's guides to tensor parallelism.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/booster/gantry.h"
#include "gantry/models/bert_family.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/memory_meter.h"
#include "program.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

// Lightning's FeedForward.
struct FeedForward : torch::nn::Module {
  FeedForward(std::int64_t width, std::int64_t hidden) {
    const auto make = [](std::int64_t in, std::int64_t out) {
      return nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
    };
    w1 = register_module("w1", make(width, hidden));
    w2 = register_module("w2", make(hidden, width));
    w3 = register_module("w3", make(width, hidden));
  }
  torch::Tensor forward(const torch::Tensor& x) { return w2(torch::silu(w1(x)) * w3(x)); }
  nn::Linear w1{nullptr}, w2{nullptr}, w3{nullptr};
};

const ShardPlan kPlan = {{"w1", Column{}}, {"w2", Row{}}, {"w3", Column{}}};

std::shared_ptr<FeedForward> feed_forward(std::int64_t width) {
  const DeferredInit deferred;
  return std::make_shared<FeedForward>(width, width);
}

TEST(Acceptance, B8ParametersAndPeakFallWithTheRanks) {
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, [&](World&, ProcessGroupMesh& mesh) {
      auto large = feed_forward(8192);  // deferred: sizes without memory
      parallelize_module(*large, mesh["tp"], kPlan);
      std::int64_t bytes = 0;
      for (const auto& parameter : large->parameters()) bytes += parameter.numel() * parameter.element_size();
      EXPECT_EQ(bytes, 805306368 / ranks);

      constexpr std::int64_t kWidth = 1024;
      MemoryMeter meter;
      auto model = feed_forward(kWidth);
      parallelize_module(*model, mesh["tp"], kPlan);
      materialize(*model, 1);
      meter.reset_peak();  // the meter counted the full deferred parameters, which never had pages
      FusedAdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        model->forward(torch::ones({8, kWidth})).sum().backward();
        optimizer.step();
      }
      // Parameters, gradients and two moments. Activations and messages have only a few rows.
      const double law = 4.0 * 3 * kWidth * kWidth * 4 / ranks;
      EXPECT_NEAR(static_cast<double>(meter.peak_bytes()), law, 0.03 * law + 12.0 * 8 * kWidth * 4);
    });
  }
}

TEST(Acceptance, B4SplittingTwiceIsRefusedAndOneDeviceNeedsNoBranch) {
  run_ranks(1, [](World& world, ProcessGroupMesh& mesh) {
    auto one = feed_forward(8);
    parallelize_module(*one, mesh["tp"], kPlan);  // no special case for a mesh of one device
    materialize(*one, 1);
    EXPECT_EQ(one->forward(torch::ones({2, 8})).sizes(), (at::IntArrayRef{2, 8}));
    EXPECT_THROW(parallelize_module(*one, mesh["tp"], kPlan), ConfigError);
    const auto config = Config::parse("model: {policy: llama}\n");
    Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
    auto model = [] {
      const DeferredInit deferred;
      return std::make_shared<models::DecoderImpl>(
          models::decoder_spec("gpt2", {{"n_embd", 8}, {"n_layer", 1}, {"n_head", 2}}));
    }();
    EXPECT_THROW(booster.boost(model), ConfigError);  // the configured policy is for another model
  });
}

TEST(Acceptance, B5GroupsGoByTheNamesOfTheirAxes) {
  run_ranks(Layout{.data = 2, .tensor = 3}, [](World&, ProcessGroupMesh& mesh) {
    EXPECT_EQ(mesh["dp"].size(), 2);
    EXPECT_EQ(mesh["tp"].size(), 3);
    try {
      mesh["tensor_parallel"];
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("tensor_parallel"));
      EXPECT_THAT(error.what(), HasSubstr("tp"));
    }
  });
}

class Numbers final : public Dataset {
 public:
  std::int64_t size() const override { return 40; }
  std::int64_t sequence_length() const override { return 4; }
  void read(std::int64_t index, std::int64_t* tokens) const override { std::fill_n(tokens, 5, index); }
};

TEST(Acceptance, B6B7C9OneLoaderFeedsTensorPeersIdenticallyAndReplicasApart) {
  run_ranks(Layout{.data = 2, .tensor = 2}, [](World& world, ProcessGroupMesh& mesh) {
    const auto config = Config::parse("model: {policy: gpt2}\nparallel: {tensor: 2, data: 2}\n", "test.yaml");
    Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
    auto model = [] {
      const DeferredInit deferred;
      return std::make_shared<models::DecoderImpl>(models::decoder_spec(
          "gpt2", {{"n_embd", 8}, {"n_layer", 1}, {"n_head", 2}, {"vocab_size", 41}, {"n_positions", 8}}));
    }();
    auto optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), 1e-2);
    // As on one device: a shuffled global batch, without the number of this rank.
    auto loader = std::make_shared<DataLoader>(std::make_shared<Numbers>(), DataLoaderOptions{.global_batch = 8});
    auto boosted = booster.boost(model, optimizer, cross_entropy(), loader);
    std::vector<double> losses;
    for (auto& batch : *boosted.loader) {
      const torch::Tensor mine = batch.tensors.at("input_ids").select(1, 0).contiguous();
      ASSERT_EQ(mine.size(0), 4);
      torch::Tensor peers = torch::empty({8}, torch::kInt64), replicas = torch::empty({8}, torch::kInt64);
      mesh["tp"].all_gather(peers, mine, {4, 4}).wait();
      mesh["dp"].all_gather(replicas, mine, {4, 4}).wait();
      EXPECT_TRUE(torch::equal(peers.narrow(0, 0, 4), peers.narrow(0, 4, 4)));
      EXPECT_EQ(std::get<0>(at::_unique(replicas)).size(0), 8);
      losses.push_back(*booster.execute_pipeline(batch, boosted, {.broadcast_loss = true}).loss);
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    EXPECT_EQ(losses.size(), 5u);  // 40 samples in global batches of 8
    const auto again =
        booster.execute_pipeline(boosted.loader->batch(0), boosted, {.broadcast_loss = true, .forward_only = true});
    EXPECT_LT(*again.loss, losses.front());
  });
}

TEST(Acceptance, C3PipelineSizeIsKnownWithTensorSize) {
  const ScratchFolder scratch;
  const std::string path =
      scratch.write("oslo.json", R"({"model_parallelism": {"tensor_parallel_size": 2, "pipeline_parallel_size": 1}})");
  run_ranks(2, [&](World&, ProcessGroupMesh&) {
    auto model = std::make_shared<models::DecoderImpl>(models::decoder_spec(
        "llama",
        {{"hidden_size", 8}, {"intermediate_size", 12}, {"num_hidden_layers", 1}, {"num_attention_heads", 2}}));
    EXPECT_EQ(initialize(*model, path).booster.mesh().size("tp"), 2);
  });
}

TEST(Acceptance, C4EveryFamilyIsSplitWithoutAPlan) {
  const ScratchFolder scratch;
  const std::string path = scratch.write("gantry.yaml", "parallel: {tensor: 2}\n");
  run_ranks(2, [&](World&, ProcessGroupMesh&) {
    const DeferredInit deferred;
    auto gpt2 = std::make_shared<models::DecoderImpl>(models::decoder_spec(
        "gpt2", {{"n_embd", 8}, {"n_layer", 1}, {"n_head", 2}, {"vocab_size", 10}, {"n_positions", 4}}));
    const auto first = initialize(*gpt2, path);
    std::map<std::string, std::int64_t> rows, columns;
    for (const auto& parameter : gpt2->named_parameters())
      if (parameter.value().dim() == 2)
        rows[parameter.key()] = parameter.value().size(0), columns[parameter.key()] = parameter.value().size(1);
    EXPECT_EQ(rows.at("h.0.attn.qkv.weight"), 12);     // fused: a half of each of query, key and value
    EXPECT_EQ(columns.at("h.0.attn.proj.weight"), 4);  // row
    EXPECT_EQ(rows.at("h.0.mlp.up.weight"), 16);
    EXPECT_EQ(columns.at("h.0.mlp.down.weight"), 16);
    EXPECT_EQ(rows.at("wte.weight"), 5);
    auto bert = std::make_shared<models::BertImpl>(models::bert_config({{"hidden_size", 8},
                                                                        {"intermediate_size", 12},
                                                                        {"num_hidden_layers", 1},
                                                                        {"num_attention_heads", 2},
                                                                        {"vocab_size", 10}}));
    const auto second = initialize(*bert, path);
    int sharded = 0;
    for (const auto& placement : second.boosted.model->stage_module().all_placements)
      sharded += placement.along("tp").sharded();
    EXPECT_GE(sharded, 10);  // query, key, value, up: weight and bias; two rows; the embedding
  });
}

}  // namespace
}  // namespace gantry::testing
