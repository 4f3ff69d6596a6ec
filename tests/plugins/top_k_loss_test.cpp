// Distillation from the teacher's largest log-probabilities: their choice, and the loss, compared with closed forms and
// with the loss of the full distribution in every layout.
#include "gantry/plugins/top_k_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/plugins/distilled_tokens.h"
#include "gantry/plugins/sequence_parts.h"
#include "gantry/plugins/top_tokens.h"
#include "gantry/tensors/libtorch.h"
#include "objective_case.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

torch::Tensor wavy_logits(std::int64_t rows, std::int64_t columns, double seed) {
  const torch::Tensor index = torch::arange(rows * columns, torch::kFloat64).view({rows, columns});
  return 3 * (seed * index * index + index).sin();
}

double largest_gap(const torch::Tensor& one, const torch::Tensor& other) {
  return (one - other).abs().max().item<double>();
}

TEST(TopTokens, AreInDescendingOrderAndTheLowerOfEqualOnes) {
  const torch::Tensor logits =
      torch::tensor({{1.0, 5.0, 2.0, 5.0, 2.0, 2.0}, {0.0, 0.0, 0.0, 0.0, 0.0, 0.0}, {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}});
  const TopTokens top = top_tokens(logits, 3, nullptr);
  EXPECT_TRUE(top.tokens.equal(torch::tensor({{1, 3, 2}, {0, 1, 2}, {5, 4, 3}}))) << top.tokens;
  EXPECT_LE(largest_gap(top.logs, logits.log_softmax(1).gather(1, top.tokens)), 1e-6);
  EXPECT_EQ(top_tokens(logits.to(torch::kBFloat16), 2, nullptr).logs.scalar_type(), torch::kFloat32);
  EXPECT_EQ(top_tokens(logits.to(torch::kFloat64), 2, nullptr).logs.scalar_type(), torch::kFloat64);
}

TEST(TopTokens, AreEqualOnRanksThatShareTheVocabulary) {
  torch::Tensor logits = wavy_logits(5, 7, 0.7);
  logits[0].fill_(1);                                // equal on all ranks
  logits[1] = torch::tensor({0, 4, 4, 1, 4, 4, 4});  // equal ones on both sides of an edge
  for (const int ranks : {2, 3, 7})
    run_ranks(ranks, [&](World&, ProcessGroupMesh& mesh) {
      ProcessGroup& group = mesh["tp"];
      const SplitDim split{&group, shard(1, 7, ranks)};
      const Range own = split.placement.ranges(group.rank()).front();
      for (const std::int64_t k : {1, 3, 7}) {
        const TopTokens alone = top_tokens(logits, k, nullptr),
                        shared = top_tokens(logits.narrow(1, own.begin, own.size()), k, &split);
        EXPECT_TRUE(shared.tokens.equal(alone.tokens)) << shared.tokens;
        EXPECT_LE(largest_gap(shared.logs, alone.logs), 1e-12);
      }
    });
}

TEST(TopTokens, AreTheSameAfterPacking) {
  for (const auto type : {torch::kFloat32, torch::kFloat64}) {
    const TopTokens top = top_tokens(wavy_logits(4, 9, 0.3).to(type), 5, nullptr);
    const torch::Tensor numbers = packed(top);
    EXPECT_EQ(numbers.sizes(), (std::vector<std::int64_t>{4, 10}));
    EXPECT_EQ(numbers.scalar_type(), type == torch::kFloat64 ? torch::kInt64 : torch::kInt32);
    const TopTokens again = unpacked(numbers);
    EXPECT_TRUE(again.tokens.equal(top.tokens));
    EXPECT_TRUE(again.logs.equal(top.logs));
  }
}

TEST(TopKDivergence, EqualsItsClosedForm) {
  constexpr double kTemperature = 1.7;
  const TopTokens teacher = top_tokens(wavy_logits(6, 9, 0.4), 4, nullptr);
  const auto closed = [&](const torch::Tensor& logits) {
    const torch::Tensor own = (logits / kTemperature).log_softmax(1).gather(1, teacher.tokens),
                        other = (teacher.logs / kTemperature).log_softmax(1);
    return (other.exp() * (other - own)).sum(1);
  };
  const torch::Tensor logits = wavy_logits(6, 9, 0.9), weights = torch::arange(1, 7, torch::kFloat64);
  torch::Tensor expected = logits.clone().set_requires_grad(true);
  (closed(expected) * weights).sum().backward();
  for (const int ranks : {1, 2, 4})
    run_ranks(ranks, [&](World&, ProcessGroupMesh& mesh) {
      ProcessGroup& group = mesh["tp"];
      const SplitDim split{&group, shard(1, 9, ranks)};
      const Range own = split.placement.ranges(group.rank()).front();
      torch::Tensor mine = logits.narrow(1, own.begin, own.size()).clone().set_requires_grad(true);
      const torch::Tensor each =
          top_k_divergences(mine, teacher.tokens, teacher.logs, ranks > 1 ? &split : nullptr, kTemperature);
      (each * weights).sum().backward();
      EXPECT_LE(largest_gap(each.detach(), closed(logits)), 1e-12);
      EXPECT_LE(largest_gap(mine.grad(), expected.grad().narrow(1, own.begin, own.size())), 1e-12);
    });
}

// Tokens with a probability of 0 have no part in the sum, even if the student excludes them.
TEST(TopKDivergence, IgnoresTokensWithoutProbability) {
  const double none = -std::numeric_limits<double>::infinity();
  torch::Tensor logits = torch::tensor({{0.0, 1.0, none}}, torch::kFloat64).set_requires_grad(true);
  const torch::Tensor each =
      top_k_divergences(logits, torch::tensor({{1, 2}}), torch::tensor({{-0.5, none}}, torch::kFloat64), nullptr, 1);
  each.sum().backward();
  EXPECT_NEAR(each.item<double>(), std::log1p(std::exp(-1.0)), 1e-12);
  EXPECT_TRUE(logits.grad().isfinite().all().item<bool>());
}

TEST(TopKLoss, RefusesNumbersOfOtherTokens) {
  const Criterion loss = top_k_loss(/*alpha=*/0, /*temperature=*/1);
  const TensorDict batch = {{"labels", torch::tensor({{1, 2}})},
                            {kTeacherTops, torch::zeros({1, 3, 4}, torch::kInt32)}};
  EXPECT_THAT(thrown_by<UsageError>([&] {
                loss({{"logits", torch::zeros({1, 2, 4})}}, batch, {});
              }),
              HasSubstr("batch entry 'teacher_tops': the tensor is int32 [1, 3, 4], and the logits are"));
}

TEST(TopKLoss, OfNoSamplesIsZero) {
  torch::Tensor logits = torch::zeros({0, 2, 9}).set_requires_grad(true);
  const Loss loss = top_k_loss(/*alpha=*/0.5, /*temperature=*/2)(
      {{"logits", logits}},
      {{"labels", torch::zeros({0, 2}, torch::kInt64)}, {kTeacherTops, torch::zeros({0, 2, 6}, torch::kInt32)}}, {});
  loss.sum.backward();
  EXPECT_EQ(loss.sum.item<float>(), 0);
  EXPECT_EQ(loss.count.item<std::int64_t>(), 0);
  EXPECT_EQ(logits.grad().sizes(), logits.sizes());
}

const char* const kTopKCase = GANTRY_SOURCE_DIR "/tests/golden/distillation/forward";

// Adds the teacher's numbers to the batch, as a run does.
void add_numbers(std::int64_t k, const ObjectiveParts& parts, Batch& mine, Booster& booster, Boosted& student) {
  run_teacher_of_case(kTopKCase, parts, mine, booster);
  const std::int64_t tokens = mine.tensors.at("input_ids").size(1);
  torch::Tensor numbers = torch::zeros({mine.samples, tokens, 2 * k}, torch::kInt64);
  if (booster.plugin().stages().holds_last()) {
    const SplitDim* split = split_logits(booster.plugin().split_outputs(student));
    const torch::Tensor own = packed(top_tokens(parts.teacher->logits.flatten(0, 1), k, split));
    const SequenceParts* shared = booster.plugin().sequence_parts(student);
    numbers = own.view({mine.samples, -1, 2 * k});
    if (shared) numbers = shared->join(numbers, tokens);  // the batch is not divided yet
  }
  mine.tensors.set(kTeacherTops, numbers.cpu());
}

ObjectiveCase top_k_case(std::int64_t k) {
  ObjectiveCase one{.folder = kTopKCase,
                    .objective = {.name = "distill", .loss_type = "forward", .temperature = 2, .alpha = 0.4},
                    .batch = read_safetensors(std::string(kTopKCase) + "/inputs.safetensors"),
                    .prepare = {}};
  one.objective.top_k = static_cast<int>(k);
  const torch::Tensor labels = one.batch.at("labels");  // those of the case are not shifted
  one.batch.set("labels", torch::cat({labels.slice(1, 1), torch::full({labels.size(0), 1}, -100, torch::kInt64)}, 1));
  one.prepare = [k](const ObjectiveParts& parts, Batch& mine, Booster& booster, Boosted& student) {
    add_numbers(k, parts, mine, booster, student);
  };
  return one;
}

// With the full vocabulary the loss is that of the golden case of the full distribution.
TEST(TopKLoss, OfTheFullVocabularyEqualsTheReferenceInEveryLayout) { expect_equal_in_layouts(top_k_case(61)); }

TEST(TopKLoss, OfAFewTokensIsEqualInEveryLayout) {
  const ObjectiveCase one = top_k_case(4);
  const ObjectiveStep alone = run_objective(one);
  EXPECT_GT(std::abs(alone.loss - run_objective(top_k_case(61)).loss), 1e-3);
  expect_same_step(alone, run_objective(one, {{.tensor = 3}, 2}), "tp 3");
  expect_same_step(alone, run_objective(one, {{.pipeline = 2, .data = 2}, 2}), "pp 2 dp 2");
  expect_same_step(alone, run_objective(one, {{.data = 3}, 2}), "dp 3");
  expect_same_step(alone, run_objective(one, {{.tensor = 2, .context = 2}, 2}), "tp 2 cp 2");
}

}  // namespace
}  // namespace gantry::testing
