// Accuracy and F1 of predictions, compared with results by hand and by sklearn, also over replicas.
#include <gtest/gtest.h>

#include "gantry/core/axis.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/held_out_scores.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

// Logits whose largest element is at the prediction.
torch::Tensor logits_for(const torch::Tensor& predictions, std::int64_t classes) {
  return torch::one_hot(predictions, classes).to(torch::kFloat32);
}

// Expects these scores on every rank of the layout. Samples
// are partitioned over dp; only the last stage has logits.
void expect_scores(const Layout& layout, const torch::Tensor& logits, const TensorDict& batch,
                   std::optional<double> accuracy, std::optional<double> f1,
                   Predictions predictions = Predictions::kClasses, std::optional<double> pearson = {}) {
  run_ranks(layout, [&](World&, ProcessGroupMesh& mesh) {
    const auto parts = split_evenly(logits.size(0), layout.data);
    const auto [begin, end] = parts.at(static_cast<std::size_t>(mesh.coordinate(axis::kData)));
    HeldOutScores scores(predictions);
    for (std::int64_t sample = begin; sample < end; ++sample) {
      TensorDict one, outputs;
      for (const auto& [name, tensor] : batch) one.set(name, tensor.narrow(0, sample, 1));
      if (mesh.coordinate(axis::kPipeline) == layout.pipeline - 1) outputs.set("logits", logits.narrow(0, sample, 1));
      scores.add(outputs, one);
    }
    const auto means = scores.over(mesh);
    for (const auto& [got, expected] :
         {std::pair(means.accuracy, accuracy), std::pair(means.f1, f1), std::pair(means.pearson, pearson)}) {
      ASSERT_EQ(got.has_value(), expected.has_value());
      if (got) EXPECT_NEAR(*got, *expected, 1e-12);
    }
  });
}

const Layout kScoredLayouts[] = {{}, {.data = 3}, {.pipeline = 2, .data = 2, .tensor = 2}};

// sklearn.metrics.f1_score([0, 0, 1, 2, 2, 2, 5], [0, 1, 1, 2, 0, 2, 2], average="macro", zero_division=0) is over the
// classes 0, 1, 2 and 5: 1/2, 2/3, 2/3 and 0.
TEST(HeldOutScoring, ClassesHaveTheMacroF1OfSklearn) {
  const torch::Tensor labels = torch::tensor({0, 0, 1, 2, 2, 2, 5, -100}),
                      guessed = torch::tensor({0, 1, 1, 2, 0, 2, 2, 3});
  for (const Layout& layout : kScoredLayouts)
    expect_scores(layout, logits_for(guessed, 7), {{"labels", labels}}, 4.0 / 7, (0.5 + 2.0 / 3 + 2.0 / 3) / 4);
}

TEST(HeldOutScoring, ClassesOfTokensCountEachToken) {
  const torch::Tensor labels = torch::tensor({{1, -100, 0}, {1, 1, -100}, {0, 2, 2}}),
                      guessed = torch::tensor({{1, 1, 1}, {1, 0, 0}, {0, 2, 0}});
  // Class 0: 2 * 1 / (3 + 2), 1: 2 * 2 / (3 + 3), 2: 2 * 1 / (1 + 2)
  for (const Layout& layout : kScoredLayouts)
    expect_scores(layout, logits_for(guessed, 3), {{"labels", labels}}, 4.0 / 7, (0.4 + 2.0 / 3 + 2.0 / 3) / 3);
}

// The start and the end with the best sum, outside of padding.
// In the first sample the best end is before the best start.
TEST(HeldOutScoring, SpansHaveTheF1OfSharedPositions) {
  torch::Tensor logits = torch::zeros({4, 6, 2});
  const auto raise = [&](int sample, int start, double by, int end, double to) {
    logits[sample][start][0] = by;
    logits[sample][end][1] = to;
  };
  raise(0, 4, 3, 1, 2);  // 4 to 1 is invalid; 4 to 4 and 4 to 5 score 3, and the first one counts
  raise(1, 1, 2, 3, 2);  // 1 to 3
  raise(2, 0, 2, 2, 2);  // 0 to 2
  logits[2][5][1] = 9;   // padding
  raise(3, 1, 2, 1, 2);
  torch::Tensor mask = torch::ones({4, 6}, torch::kInt64);
  mask[2][5] = 0;
  const TensorDict batch{{"start_positions", torch::tensor({4, 2, 0, 7})},
                         {"end_positions", torch::tensor({5, 5, 2, 7})},
                         {"attention_mask", mask}};
  // Shared positions: 2 * 1 / (1 + 2); 2 * 2 / (3 + 4); 1.
  // The labels of the last sample are outside of its tokens.
  for (const Layout& layout : kScoredLayouts)
    expect_scores(layout, logits, batch, 1.0 / 3, (2.0 / 3 + 4.0 / 7 + 1) / 3, Predictions::kSpans);
}

// sklearn: f1_score(average="macro") of labels 0, 1 and 2 is 1, 2/3 and 0; accuracy_score counts samples.
TEST(HeldOutScoring, SeveralLabelsCountSamplesThatAreAllRight) {
  const torch::Tensor logits =
                          torch::tensor({{2.0, -1.0, -1.0}, {1.0, 3.0, -2.0}, {-1.0, 0.5, 4.0}, {-1.0, -1.0, -1.0}}),
                      labels = torch::tensor({{1.0, 0.0, 0.0}, {1.0, 1.0, 0.0}, {0.0, 0.0, 0.0}, {0.0, 0.0, 0.0}});
  for (const Layout& layout : kScoredLayouts)
    expect_scores(layout, logits, {{"labels", labels}}, 3.0 / 4, (1 + 2.0 / 3 + 0) / 3, Predictions::kSeveralLabels);
}

// numpy.corrcoef([1, 2, 3, 5], [2, 1, 4, 4]): 0.7481900559272088
TEST(HeldOutScoring, NumbersHaveTheirCorrelation) {
  const torch::Tensor logits = torch::tensor({1.0, 2.0, 3.0, 5.0}, torch::kFloat64).view({4, 1}),
                      labels = torch::tensor({2, 1, 4, 4});
  for (const Layout& layout : kScoredLayouts) {
    expect_scores(layout, logits, {{"labels", labels}}, {}, {}, Predictions::kNumbers, 0.7481900559272088);
    const torch::Tensor two = torch::cat({logits, -logits}, 1), of_two = torch::stack({labels, labels}, 1);
    expect_scores(layout, two, {{"labels", of_two}}, {}, {}, Predictions::kNumbers, 0);
  }
}

// A correlation does not depend on the scale or on a constant.
TEST(HeldOutScoring, NumbersMayHaveALargeMeanAndASmallSpread) {
  const torch::Tensor logits = torch::tensor({1.0, 2.0, 3.0, 5.0}, torch::kFloat64).view({4, 1}),
                      labels = torch::tensor({2, 1, 4, 4});
  for (const Layout& layout : kScoredLayouts)
    for (const double mean : {-1e3, 1e6, 1e9})
      expect_scores(layout, logits + mean, {{"labels", labels + 2000}}, {}, {}, Predictions::kNumbers,
                    0.7481900559272088);
  expect_scores({}, logits * 1e-200, {{"labels", labels}}, {}, {}, Predictions::kNumbers, 0);  // squares are 0
}

TEST(HeldOutScoring, NothingCountedIsNothing) {
  expect_scores({.data = 2}, torch::zeros({2, 3}), {{"labels", torch::tensor({-100, -100})}}, 0, 0);
}

}  // namespace
}  // namespace gantry::testing
