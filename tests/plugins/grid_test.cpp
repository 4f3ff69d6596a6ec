// Every layout gives one rank's numbers: float64, 1e-10, four steps with dropout, ties, ignored labels and a short last
// batch.
#include <gtest/gtest.h>

#include "gpt_case.h"

namespace gantry::testing {
namespace {

constexpr double kTolerance = 1e-10;

void expect_layouts_equal(const GptCase& what, const std::vector<Parallelism>& layouts) {
  const CaseResult expected = run_case(what, {});
  for (const auto& how : layouts) {
    expect_equal(expected, run_case(what, how), kTolerance, describe(how));
    if (::testing::Test::HasFailure()) return;
  }
}

std::vector<Parallelism> product(std::vector<int> tensor, std::vector<int> pipeline, std::vector<int> data,
                                 const std::vector<std::string>& schedules, const std::vector<int>& microbatches) {
  std::vector<Parallelism> all;
  for (const int t : tensor)
    for (const int p : pipeline)
      for (const int d : data)
        for (const auto& schedule : schedules)
          for (const int m : microbatches) all.push_back({{.pipeline = p, .data = d, .tensor = t}, schedule, m});
  return all;
}

TEST(Grid, TiedWithDropoutOverAllAxes) {
  expect_layouts_equal({.dropout = 0.1}, product({1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2}, {"1f1b"}, {2}));
}

TEST(Grid, SequenceParallel) {
  auto layouts = product({2, 3, 4}, {1, 2, 3}, {1, 2}, {"1f1b"}, {2});
  for (auto& how : layouts) how.sequence_parallel = true;
  expect_layouts_equal({.dropout = 0.1}, layouts);
  expect_layouts_equal({.dropout = 0.1, .tokens = 2}, {layouts.back()});  // a rank without tokens
}

TEST(Grid, GPipe) {
  expect_layouts_equal({.layers = 7, .dropout = 0.1}, product({1, 2}, {2, 3, 4}, {1, 2}, {"gpipe"}, {3}));
}

TEST(Grid, UntiedWithAnotherVocabulary) {
  expect_layouts_equal({.layers = 7, .vocabulary = 307, .tied = false},
                       product({1, 2, 3, 4}, {1, 2, 4}, {1}, {"1f1b"}, {4}));
}

TEST(Grid, MicrobatchesFromOneToEight) {
  expect_layouts_equal({.dropout = 0.1, .batches = {8, 8, 8, 3}},
                       product({1, 2}, {1, 3}, {1}, {"1f1b", "gpipe"}, {1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Grid, LastBatchShorterThanReplicas) {
  expect_layouts_equal({.batches = {4, 4, 1}}, product({1, 2}, {1, 2}, {2}, {"1f1b"}, {2}));
}

TEST(Grid, SchedulesGiveOneRanksBitsUntiedWithoutClipping) {
  GptCase what{.tied = false, .clip = 1e9, .precision = "float32"};
  for (const int m : {1, 3, 6}) {
    const CaseResult expected = run_case(what, {.microbatches = m});
    for (const int p : {2, 3, 4})
      for (const char* schedule : {"1f1b", "gpipe"})
        expect_identical(expected, run_case(what, {{.pipeline = p}, schedule, m}),
                         describe({{.pipeline = p}, schedule, m}));
  }
}

TEST(Grid, SameLayoutSameBits) {
  const GptCase what{.dropout = 0.1, .precision = "float32"};
  const Parallelism how{{.pipeline = 2, .data = 1, .tensor = 2}, "1f1b", 3};
  expect_identical(run_case(what, how), run_case(what, how), describe(how));
}

}  // namespace
}  // namespace gantry::testing
