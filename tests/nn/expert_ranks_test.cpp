// Experts on other ranks: both dispatchers compared with all
// experts on one rank, for uneven numbers of experts and tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/nn/experts.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"
#include "sines.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSize = 6;

struct SpreadCase {
  int ranks = 2;
  std::int64_t experts = 5, used = 2;
  std::vector<std::int64_t> samples;  // number of samples per rank
  bool interleaved = false;
  int favourite = -1;  // an expert that every token also chooses
};

struct SpreadBlock : torch::nn::Module {
  explicit SpreadBlock(const SpreadCase& how)
      : router(nn::RouterOptions{.hidden = kSize, .experts = how.experts, .used = how.used, .bias = true}),
        experts(nn::ExpertsOptions{.shape = {how.experts, kSize, 7, how.interleaved, how.interleaved},
                                   .limit = how.interleaved ? 0.4 : 0.0}) {
    register_module("router", router);
    register_module("experts", experts);
    to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    double step = 0.7;
    for (auto& parameter : parameters()) parameter.copy_(sines(parameter.sizes().vec(), step += 0.31));
    if (how.favourite >= 0) router->bias[how.favourite] = 100;
  }
  torch::Tensor forward(const torch::Tensor& tokens) { return experts(tokens, router(tokens)); }
  nn::Router router;
  nn::Experts experts;
};

struct SpreadOutcome {
  torch::Tensor output, input_gradient;
  std::map<std::string, torch::Tensor> gradients;
};

SpreadOutcome outcome_of(SpreadBlock& block, const torch::Tensor& tokens, const torch::Tensor& factors) {
  const torch::Tensor input = tokens.clone().requires_grad_();
  SpreadOutcome outcome{.output = block.forward(input), .input_gradient = {}, .gradients = {}};
  (outcome.output * factors).sum().backward();
  outcome.input_gradient = input.grad();
  for (const auto& item : block.named_parameters()) outcome.gradients[item.key()] = item.value().grad();
  return outcome;
}

double apart(const torch::Tensor& one, const torch::Tensor& other) {
  return one.numel() == 0 ? 0 : (one - other).abs().max().item<double>();
}

// Each rank has its own samples. The expected block runs the samples of all ranks on one rank.
void expect_as_on_one_rank(const SpreadCase& how) {
  run_ranks({.data = how.ranks, .expert = how.ranks}, [&](World&, ProcessGroupMesh& mesh) {
    std::int64_t all = 0, first = 0;
    for (int rank = 0; rank < how.ranks; ++rank) {
      if (rank == mesh.rank()) first = all;
      all += how.samples[rank];
    }
    const torch::Tensor tokens = sines({all, 3, kSize}, 1.3), factors = sines({all, 3, kSize}, 0.9);
    const auto mine = [&](const torch::Tensor& of) { return of.narrow(0, first, how.samples[mesh.rank()]); };
    SpreadBlock full(how);
    const SpreadOutcome expected = outcome_of(full, tokens, factors);
    SpreadOutcome by_rows;
    for (const auto dispatch : {ExpertDispatch::kAllToAll, ExpertDispatch::kAllGather}) {
      SpreadBlock block(how);
      const auto placements =
          block.experts->shard(Expert{.partitioned = true, .dispatch = dispatch}, {mesh, {axis::kExpert}});
      const SpreadOutcome got = outcome_of(block, mine(tokens), mine(factors));
      EXPECT_LE(apart(got.output, mine(expected.output)), 1e-13);
      EXPECT_LE(apart(got.input_gradient, mine(expected.input_gradient)), 1e-13);
      for (const auto& [name, split] : placements) {
        EXPECT_EQ(split.view, axis::View::kExpert);
        EXPECT_EQ(split.shards.front().axes, (std::vector<Axis>{{axis::kExpert, how.ranks}}));
        const Range held = split.shards.front().ranges(mesh.rank()).front();
        EXPECT_LE(apart(got.gradients.at("experts." + name),
                        expected.gradients.at("experts." + name).narrow(0, held.begin, held.size())),
                  1e-13)
            << name;
      }
      torch::Tensor router = got.gradients.at("router.weight").clone();
      mesh[axis::kData].all_reduce(router).wait();
      EXPECT_LE(apart(router, expected.gradients.at("router.weight")), 1e-12);
      if (dispatch == ExpertDispatch::kAllToAll) by_rows = got;
    }
    // A second run is bitwise identical.
    SpreadBlock again(how);
    again.experts->shard(Expert{.partitioned = true}, {mesh, {axis::kExpert}});
    const SpreadOutcome second = outcome_of(again, mine(tokens), mine(factors));
    EXPECT_TRUE(torch::equal(second.output, by_rows.output));
    for (const auto& [name, gradient] : second.gradients)
      EXPECT_TRUE(torch::equal(gradient, by_rows.gradients.at(name))) << name;
  });
}

TEST(ExpertRanks, HaveTheNumbersOfOneRank) {
  for (const bool interleaved : {false, true}) {
    expect_as_on_one_rank({.ranks = 2, .experts = 5, .used = 2, .samples = {2, 2}, .interleaved = interleaved});
    expect_as_on_one_rank({.ranks = 3, .experts = 6, .used = 1, .samples = {1, 3, 2}, .interleaved = interleaved});
    expect_as_on_one_rank({.ranks = 4, .experts = 4, .used = 4, .samples = {1, 2, 1, 1}, .interleaved = interleaved});
  }
}

TEST(ExpertRanks, ARankWithoutTokensTakesPart) {
  expect_as_on_one_rank({.ranks = 3, .experts = 4, .used = 2, .samples = {2, 0, 1}});
  expect_as_on_one_rank({.ranks = 2, .experts = 4, .used = 2, .samples = {0, 0}});
}

TEST(ExpertRanks, AllTokensMayGoToOneExpert) {
  for (const int favourite : {0, 3})
    expect_as_on_one_rank({.ranks = 2, .experts = 4, .used = 1, .samples = {2, 1}, .favourite = favourite});
}

TEST(ExpertRanks, MoreRanksThanExpertsAreRefused) {
  run_ranks({.data = 3, .expert = 3}, [](World&, ProcessGroupMesh& mesh) {
    SpreadBlock block({.experts = 2, .used = 1});
    const auto shard = [&] { block.experts->shard(Expert{.partitioned = true}, {mesh, {axis::kExpert}}); };
    EXPECT_THAT(thrown_by<ConfigError>(shard), HasSubstr("2"));
  });
}

}  // namespace
}  // namespace gantry::testing
