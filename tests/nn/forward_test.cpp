// The state of a forward, and the runner of layers, without ranks.
#include "gantry/nn/forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/dropout.h"
#include "gantry/nn/recompute.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/philox.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

TEST(ForwardScope, PlainLoopsDrawAgainAndScopesNest) {
  EXPECT_NE(random_context().step, random_context().step);
  const ForwardScope outer({.random = RandomContext{.seed = 1, .step = 10}});
  {
    const ForwardScope inner({.random = RandomContext{.seed = 1, .step = 20}});
    EXPECT_EQ(random_context().step, 20u);
  }
  EXPECT_EQ(random_context().step, 10u);
}

torch::Tensor leaf(double scale = 1) {
  return torch::sin(torch::arange(12, torch::kFloat64) * scale).view({3, 4}).requires_grad_();
}

std::string refusal_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(AddLoss, IsTakenByWhoeverRunsTheForward) {
  const torch::Tensor x = leaf();
  TensorDict losses;
  {
    const ForwardScope scope({.losses = &losses});
    add_loss("a", x.sum());
    add_loss("b", x.square().sum());
    add_loss("a", 2 * x.sum());
  }
  EXPECT_TRUE(torch::allclose(losses.at("a"), 3 * x.sum()));
  EXPECT_EQ(losses.size(), 2u);
  EXPECT_THAT(refusal_of([&] { add_loss("a", x.sum()); }),
              HasSubstr("the loss 'a' would be lost in a forward with gradients"));
  const torch::NoGradGuard no_grad;  // an evaluation that only needs outputs
  add_loss("a", x.sum());
}

TEST(AddLoss, IsAScalarWithAName) {
  TensorDict losses;
  const ForwardScope scope({.losses = &losses});
  EXPECT_THAT(refusal_of([] { add_loss("a", torch::ones({2})); }), HasSubstr("'a' and float32 [2]"));
  EXPECT_THAT(refusal_of([] { add_loss("", torch::ones({})); }), HasSubstr("expected a name and a scalar"));
}

TEST(AddLoss, OfARecomputedPartCountsOnceAndHasItsGradient) {
  const auto part = [](const torch::Tensor& x) {
    const torch::Tensor inner = x.exp();
    add_loss("size", inner.square().sum());
    return inner * 2;
  };
  const torch::Tensor plain = leaf(), again = leaf();
  TensorDict expected, losses;
  {
    const ForwardScope scope({.losses = &expected});
    const torch::Tensor out = part(plain);
    (out.sum() + expected.at("size")).backward();
  }
  const ForwardScope scope({.losses = &losses});
  const torch::Tensor out = nn::recompute([&](const auto& in) { return part(in[0]); }, {again});
  (out.sum() + losses.at("size")).backward();
  EXPECT_EQ(losses.at("size").item<double>(), expected.at("size").item<double>());
  EXPECT_TRUE(torch::equal(again.grad(), plain.grad()));
}

// Three parts. The second one leaves an entry that only the third one reads.
LayerParts three_parts(int index, Names* ran) {
  const auto note = [ran, index](const char* part) { ran->push_back(std::to_string(index) + part); };
  return {{"a",
           [=](const TensorDict& state) {
             note("a");
             return TensorDict{{"x", torch::tanh(state.at("x")) * state.at("fixed")}};
           }},
          {"b",
           [=](const TensorDict& state) {
             note("b");
             return TensorDict{{"bookkeeping", state.at("x").exp()}};
           }},
          {"c", [=](const TensorDict& state) {
             note("c");
             add_loss("c", state.at("bookkeeping").sum());
             return TensorDict{{"x", state.at("x") + state.at("bookkeeping")}, {"bookkeeping", {}}};
           }}};
}

struct ThreeParts {
  TensorDict state;
  torch::Tensor loss, x_gradient, fixed_gradient;
  Names ran;
};

ThreeParts run_three_parts(Recomputation recomputation, std::vector<int> recomputed_layers = {}) {
  ThreeParts got;
  const torch::Tensor x = leaf(), fixed = leaf(0.3);
  TensorDict losses;
  const ForwardScope scope({.losses = &losses});
  const auto stage = std::make_shared<const StageContext>(
      1, 3, LayerRange{2, 4},
      StageContext::Settings{
          .recomputation = recomputation, .recomputed_layers = std::move(recomputed_layers), .lists = {1, 2, 3}});
  got.state = stage->run_layers(
      {{"x", x * 1}, {"fixed", fixed}}, [&](int index) { return three_parts(index, &got.ran); }, /*list=*/1);
  got.state = stage->run_layers(
      got.state, [&](int index) { return three_parts(index, &got.ran); }, /*list=*/2);
  got.loss = losses.at("c");
  (got.state.at("x").square().sum() + got.loss).backward();
  got.x_gradient = x.grad();
  got.fixed_gradient = fixed.grad();
  return got;
}

TEST(RunLayers, PartsOfTheStagesOwnLayersAreRunRecomputedOrNot) {
  const ThreeParts plain = run_three_parts(Recomputation::kNone);
  // Layer 1 of the second list, then layer 0 of the third.
  EXPECT_THAT(plain.ran, ElementsAre("1a", "1b", "1c", "0a", "0b", "0c"));
  EXPECT_EQ(plain.state.size(), 2u);
  const auto expect_same = [&](const ThreeParts& other) {
    EXPECT_TRUE(torch::equal(other.state.at("x"), plain.state.at("x")));
    EXPECT_TRUE(torch::equal(other.loss, plain.loss));
    EXPECT_TRUE(torch::allclose(other.x_gradient, plain.x_gradient, 1e-14, 1e-14));
    EXPECT_TRUE(torch::allclose(other.fixed_gradient, plain.fixed_gradient, 1e-14, 1e-14));
    EXPECT_EQ(other.state.size(), 2u);
  };
  const ThreeParts full = run_three_parts(Recomputation::kFull);
  expect_same(full);
  EXPECT_THAT(Names(full.ran.begin() + 6, full.ran.end()), ElementsAre("0a", "0b", "0c", "1a", "1b", "1c"));
  const ThreeParts parts = run_three_parts(Recomputation::kParts);
  expect_same(parts);
  EXPECT_THAT(Names(parts.ran.begin() + 6, parts.ran.end()), ElementsAre("0c", "0b", "0a", "1c", "1b", "1a"));
  const ThreeParts first_alone = run_three_parts(Recomputation::kFull, {1});
  expect_same(first_alone);
  EXPECT_THAT(Names(first_alone.ran.begin() + 6, first_alone.ran.end()), ElementsAre("1a", "1b", "1c"));
}

TEST(StageContext, KnowsItsLayersOfEachList) {
  const StageContext stage(1, 3, {2, 4}, {.lists = {1, 2, 3}});
  EXPECT_THAT(stage.layers(0), ElementsAre());
  EXPECT_THAT(stage.layers(1), ElementsAre(1));
  EXPECT_THAT(stage.layers(2), ElementsAre(0));
  EXPECT_FALSE(stage.begins(1));
  EXPECT_TRUE(stage.ends(1));
  EXPECT_TRUE(stage.begins(2));
  EXPECT_FALSE(stage.ends(2));
  EXPECT_THAT(refusal_of([&] { stage.begins(3); }), HasSubstr("list 3 does not exist, because there are 3"));
}

TEST(RunLayers, ReportsTheLayerAndThePartThatRun) {
  ForwardReport report;
  Names seen;
  const ForwardScope scope({.report = &report});
  const auto stage = StageContext::full(2, {});
  stage->run_layers(leaf(), [&](int) {
    return LayerParts{{"mlp", [&](const torch::Tensor& x) {
                         seen.push_back(std::to_string(report.layer) + report.part);
                         return x;
                       }}};
  });
  EXPECT_THAT(seen, ElementsAre("0mlp", "1mlp"));
  EXPECT_EQ(report.layer, -1);
  EXPECT_TRUE(report.ran_layers);
}

TEST(Attention, MakesTheMaskOfAForwardOnce) {
  const torch::Tensor keep = torch::tensor({{false, true, true, true}});
  const torch::Tensor query = torch::ones({1, 1, 4, 2}, torch::kFloat64);
  const nn::Dropout none(0.0);
  const auto attend = [&] {
    return nn::attention(query, query, query, {0, 1, 1}, {0, 1, 1}, {.causal = true, .keep = keep}, *none);
  };
  const torch::Tensor alone = attend();
  const auto stage = StageContext::full(1, {});
  const ForwardScope scope({.stage = stage});
  EXPECT_TRUE(torch::equal(attend(), alone));
  const nn::AttentionMasks::Wanted wanted{
      nn::AttentionMasks::Kind::kAdditive, keep, {}, true, 0, 4, 4, torch::kFloat64};
  EXPECT_EQ(stage->masks().get(wanted, [] { return torch::Tensor(); }).sizes(), (torch::IntArrayRef{1, 1, 4, 4}));
  stage->masks().clear();
  EXPECT_FALSE(stage->masks().get(wanted, [] { return torch::Tensor(); }).defined());
}

TEST(Tokens, CountPositionsInEachDocumentUnlessTheBatchSaysThem) {
  const torch::Tensor documents = torch::tensor({{4, 4, 4, 9, 9, 4}, {1, 2, 2, 2, 2, 2}});
  const auto known = StageContext::full(1, {{"document_ids", documents}})->tokens();
  EXPECT_TRUE(torch::equal(known.positions, torch::tensor({{0, 1, 2, 0, 1, 0}, {0, 0, 1, 2, 3, 4}})));
  EXPECT_FALSE(known.keep.defined());
  const torch::Tensor said = torch::zeros({2, 6}, torch::kInt64);
  const TensorDict batch{{"decoder_document_ids", documents}, {"decoder_position_ids", said}};
  EXPECT_TRUE(torch::equal(StageContext::full(1, batch)->tokens("decoder_").positions, said));
  EXPECT_FALSE(StageContext::full(1, batch)->tokens().positions.defined());
}

// Packed documents give the results of each document alone, with padding too.
TEST(Attention, DocumentsSeeThemselvesAlone) {
  const torch::Tensor x = torch::sin(torch::arange(2 * 7 * 4, torch::kFloat64)).view({1, 2, 7, 4});
  const torch::Tensor documents = torch::tensor({{0, 0, 0, 1, 1, 1, 1}});
  const torch::Tensor keep = torch::tensor({{true, true, true, true, true, true, false}});
  for (const bool causal : {false, true}) {
    const nn::Dropout drop(0.0);
    const auto attend = [&](const torch::Tensor& of, const nn::AttentionOptions& options) {
      return nn::attention(of, of, of, {0, 2, 2}, {0, 2, 2}, options, *drop);
    };
    const torch::Tensor packed = attend(x, {.causal = causal, .keep = keep, .documents = documents});
    const torch::Tensor first = attend(x.narrow(2, 0, 3), {.causal = causal});
    const torch::Tensor second =
        attend(x.narrow(2, 3, 4), {.causal = causal, .keep = keep.narrow(1, 3, 4).contiguous()});
    EXPECT_TRUE(torch::allclose(packed.narrow(2, 0, 3), first, 1e-12, 1e-12));
    EXPECT_TRUE(torch::allclose(packed.narrow(2, 3, 4), second, 1e-12, 1e-12));
  }
}

}  // namespace
}  // namespace gantry::testing
