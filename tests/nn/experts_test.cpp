// Routers and experts: ties, weights, and rows that all go to one expert, compared with every expert on every
// token. Also a custom layer that is sharded by Expert{}.
#include "gantry/nn/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/nn/recompute.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"
#include "sines.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using Scores = nn::RouterOptions::Scores;

constexpr std::int64_t kHidden = 6, kExperts = 5, kWidth = 7;

// A custom layer.
struct Block : torch::nn::Module {
  explicit Block(const nn::RouterOptions& options = {.hidden = kHidden, .experts = kExperts, .used = 2},
                 bool interleaved = false)
      : router(options),
        experts(nn::ExpertsOptions{.shape = {options.experts, kHidden, kWidth, interleaved, interleaved},
                                   .limit = interleaved ? 0.4 : 0.0}) {
    register_module("router", router);
    register_module("experts", experts);
    to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    double step = 0.7;
    for (auto& parameter : parameters()) parameter.copy_(sines(parameter.sizes().vec(), step += 0.31));
  }
  torch::Tensor forward(const torch::Tensor& tokens) { return experts(tokens, router(tokens)); }

  nn::Router router;
  nn::Experts experts;
};

// Applies every expert to every token. Experts that the token did not choose have weight 0.
torch::Tensor dense(Block& block, const torch::Tensor& tokens) {
  const nn::Routing routing = block.router(tokens);
  const nn::ExpertsOptions& options = block.experts->options;
  torch::Tensor sum = torch::zeros_like(tokens);
  for (std::int64_t expert = 0; expert < options.shape.experts; ++expert) {
    const torch::Tensor weight = (routing.weights * (routing.ids == expert)).sum(-1, true);
    torch::Tensor first = block.experts->gate_up_proj[expert], second = block.experts->down_proj[expert], made;
    if (options.shape.interleaved) {
      const torch::Tensor both = tokens.matmul(first) + block.experts->gate_up_proj_bias[expert];
      const torch::Tensor gate =
          both.index({"...", torch::indexing::Slice(0, torch::indexing::None, 2)}).clamp_max(0.4);
      const torch::Tensor up =
          both.index({"...", torch::indexing::Slice(1, torch::indexing::None, 2)}).clamp(-0.4, 0.4);
      made = ((up + 1) * gate * torch::sigmoid(1.702 * gate)).matmul(second) + block.experts->down_proj_bias[expert];
    } else {
      const auto parts = tokens.matmul(first.t()).chunk(2, -1);
      made = (torch::silu(parts[0]) * parts[1]).matmul(second.t());
    }
    sum = sum + made * weight;
  }
  return sum;
}

std::map<std::string, torch::Tensor> gradients_of(Block& block, const torch::Tensor& output) {
  (output * sines(output.sizes().vec(), 0.9)).sum().backward();
  std::map<std::string, torch::Tensor> gradients;
  for (auto& item : block.named_parameters()) gradients[item.key()] = item.value().grad().clone();
  block.zero_grad();
  return gradients;
}

void expect_as_dense(Block& block, const torch::Tensor& tokens) {
  const torch::Tensor output = block.forward(tokens), expected = dense(block, tokens);
  EXPECT_LE((output - expected).abs().max().item<double>(), 1e-13);
  const auto got = gradients_of(block, output), wanted = gradients_of(block, expected);
  for (const auto& [name, gradient] : wanted)
    EXPECT_LE((got.at(name) - gradient).abs().max().item<double>(), 1e-12) << name;
}

TEST(Experts, AreEveryExpertOnEveryToken) {
  for (const bool interleaved : {false, true})
    for (const std::int64_t used : {1, 2, 5}) {
      Block block({.hidden = kHidden, .experts = kExperts, .used = used, .normalised = used > 1}, interleaved);
      expect_as_dense(block, sines({3, 4, kHidden}, 1.3));
    }
}

TEST(Experts, AllTokensMayGoToOneExpert) {
  Block block({.hidden = kHidden, .experts = kExperts, .used = 1, .bias = true});
  block.router->bias.data()[3] = 100;
  const torch::Tensor tokens = sines({2, 4, kHidden}, 1.3);
  EXPECT_TRUE(block.router(tokens).ids.eq(3).all().item<bool>());
  expect_as_dense(block, tokens);
}

TEST(Experts, NoTokensGiveZeroGradients) {
  Block block;
  for (const auto& [name, gradient] :
       gradients_of(block, block.forward(torch::zeros({0, 4, kHidden}, torch::kFloat64))))
    EXPECT_EQ(gradient.abs().max().item<double>(), 0) << name;
}

TEST(Experts, RecomputedTiesGiveTheSameBits) {
  Block block;
  block.router->weight.data().zero_();
  const torch::Tensor tokens = sines({3, 4, kHidden}, 1.3).requires_grad_();
  const auto plain = gradients_of(block, block.forward(tokens));
  const auto again =
      gradients_of(block, nn::recompute([&](const auto& given) { return block.forward(given[0]); }, {tokens}));
  for (const auto& [name, gradient] : plain) EXPECT_TRUE(torch::equal(again.at(name), gradient)) << name;
}

TEST(Router, OfEqualScoresTheLowerNumberComesFirst) {
  for (const Scores scores : {Scores::kSoftmax, Scores::kSoftmaxOfUsed, Scores::kSigmoid}) {
    nn::Router router(nn::RouterOptions{.hidden = 2,
                                        .experts = 8,
                                        .used = 3,
                                        .scores = scores,
                                        .groups = scores == Scores::kSigmoid ? 4 : 1,
                                        .used_groups = scores == Scores::kSigmoid ? 2 : 1});
    router->weight.data().zero_();
    const nn::Routing routing = router(torch::ones({4, 2}));
    EXPECT_TRUE(torch::equal(routing.ids, torch::tensor({0, 1, 2}).expand({4, 3}))) << static_cast<int>(scores);
  }
}

// DeepSeek-V3: the expert bias affects the choice, but not the weights.
TEST(Router, WeightsAreThoseWithoutTheCorrection) {
  nn::Router router(nn::RouterOptions{.hidden = 1,
                                      .experts = 4,
                                      .used = 2,
                                      .scores = Scores::kSigmoid,
                                      .normalised = true,
                                      .scale = 2.5,
                                      .correction = true});
  router->weight.data().copy_(torch::tensor({3.0, 2.0, 1.0, 0.0}).view({4, 1}));
  router->correction.copy_(torch::tensor({0.0, 0.0, 0.0, 5.0}));
  const nn::Routing routing = router(torch::ones({1, 1}));
  EXPECT_TRUE(torch::equal(routing.ids, torch::tensor({{3, 0}})));
  const double first = 0.5, second = 1 / (1 + std::exp(-3.0));
  EXPECT_NEAR(routing.weights[0][0].item<double>(), 2.5 * first / (first + second), 1e-6);
  EXPECT_NEAR(routing.weights[0][1].item<double>(), 2.5 * second / (first + second), 1e-6);
}

TEST(Router, WhatDoesNotFitIsRefused) {
  const auto refusal = [](const nn::RouterOptions& options) -> std::string {
    return thrown_by<ConfigError>([&] { nn::Router router(options); });
  };
  EXPECT_THAT(refusal({.experts = 4, .used = 5}), HasSubstr("a token uses 5 of 4 experts"));
  EXPECT_THAT(refusal({.experts = 4, .groups = 3}), HasSubstr("3 groups of 4 experts"));
  EXPECT_THAT(refusal({.experts = 4, .groups = 4}), HasSubstr("at least 2 experts per group"));
  EXPECT_THAT(refusal({.experts = 4, .groups = 2, .used_groups = 3}), HasSubstr("3 of 2 groups"));
}

// Gradients are reduced in the backward, as for any other module of a plain program.
TEST(Experts, AreSplitInALayerOfOnesOwn) {
  run_ranks(3, [](World&, ProcessGroupMesh& mesh) {
    for (const bool interleaved : {false, true})
      for (const bool sequence : {false, true}) {
        const nn::RouterOptions options{.hidden = kHidden, .experts = kExperts, .used = 2, .bias = interleaved};
        Block full(options, interleaved), split(options, interleaved);
        ProcessGroup& group = mesh["tp"];
        ShardPlan plan = {{"experts", Expert{}}};
        if (sequence) plan = {{"experts", Expert{.border = Shard{1}}}, {"router", SequenceParallel{}}};
        const auto placements = parallelize_module(split, group, plan);
        const torch::Tensor tokens = sines({2, 4, kHidden}, 1.3), factors = sines({2, 4, kHidden}, 0.9);
        const auto part = [&](const torch::Tensor& of) {
          return sequence ? redistribute(of, group, Replicate{}, Shard{1}) : of;
        };
        const torch::Tensor expected = full.forward(tokens), output = split.forward(part(tokens));
        EXPECT_LE((output - part(expected)).abs().max().item<double>(), 1e-13);
        (expected * factors).sum().backward();
        (output * part(factors)).sum().backward();
        for (const auto& placement : placements) {
          torch::Tensor gradient = full.named_parameters()[placement.name].grad();
          for (const ShardSpec& shard : placement.shards) shard_tensor(gradient, shard, group.rank());
          EXPECT_LE((split.named_parameters()[placement.name].grad() - gradient).abs().max().item<double>(), 1e-12)
              << placement.name << (sequence ? " sequence" : "") << (interleaved ? " interleaved" : "");
        }
      }
  });
}

}  // namespace
}  // namespace gantry::testing
