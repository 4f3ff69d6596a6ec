// Every layout gives one rank's numbers: float64, 1e-10, four steps with dropout, ties, ignored labels and a short last
// batch.
#include <gtest/gtest.h>

#include "model_case.h"

namespace gantry::testing {
namespace {

TEST(Grid, TiedWithDropoutOverAllAxes) {
  expect_layouts_equal({.dropout = 0.1},
                       layout_grid({.tensor = {1, 2, 3, 4}, .pipeline = {1, 2, 3, 4}, .data = {1, 2}}));
}

TEST(Grid, GPipe) {
  expect_layouts_equal(
      {.layers = 7, .dropout = 0.1},
      layout_grid(
          {.tensor = {1, 2}, .pipeline = {2, 3, 4}, .data = {1, 2}, .schedules = {"gpipe"}, .microbatches = {3}}));
}

TEST(Grid, UntiedWithAnotherVocabulary) {
  expect_layouts_equal({.layers = 7, .vocabulary = 307, .tied = false},
                       layout_grid({.tensor = {1, 2, 3, 4}, .pipeline = {1, 2, 4}, .microbatches = {4}}));
}

TEST(Grid, MicrobatchesFromOneToEight) {
  expect_layouts_equal({.dropout = 0.1, .batches = {8, 8, 8, 3}},
                       layout_grid({.tensor = {1, 2},
                                    .pipeline = {1, 3},
                                    .schedules = {"1f1b", "gpipe"},
                                    .microbatches = {1, 2, 3, 4, 5, 6, 7, 8}}));
}

TEST(Grid, LastBatchShorterThanReplicas) {
  expect_layouts_equal({.batches = {4, 4, 1}}, layout_grid({.tensor = {1, 2}, .pipeline = {1, 2}, .data = {2}}));
}

// Gathers and reductions of sharded layers are sent in pieces, some of them uneven.
TEST(Grid, MessagesOfSplitLayersInPieces) {
  for (const char* family : {"gpt2", "llama"})
    expect_layouts_equal(
        {.family = family, .dropout = 0.1},
        {{.layout = {.tensor = 2}, .tensor_overlap = 3},
         {.layout = {.pipeline = 2, .tensor = 3}, .schedule = "zb_h1", .microbatches = 2, .tensor_overlap = 3},
         {.layout = {.tensor = 3}, .sequence_parallel = true, .tensor_overlap = 3},
         {.layout = {.pipeline = 2, .tensor = 2},
          .schedule = "zb_h1",
          .microbatches = 2,
          .sequence_parallel = true,
          .recompute = "full",
          .tensor_overlap = 2},
         {.layout = {.data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 3, .tensor_overlap = 2}});
}

TEST(Grid, SchedulesGiveOneRanksBitsUntiedWithoutClipping) {
  ModelCase what{.tied = false, .clip = 1e9, .precision = "float32"};
  for (const int m : {1, 3, 6}) {
    const CaseResult expected = run_case(what, {.microbatches = m});
    const LayoutAxes axes{.pipeline = {2, 3, 4}, .schedules = {"1f1b", "gpipe"}, .microbatches = {m}};
    for (const Parallelism& how : layouts_to_run(layout_grid(axes)))
      expect_identical(expected, run_case(what, how), describe(how));
  }
}

TEST(Grid, SameLayoutSameBits) {
  const ModelCase what{.dropout = 0.1, .precision = "float32"};
  const Parallelism how{{.pipeline = 2, .data = 1, .tensor = 2}, "1f1b", 3};
  expect_identical(run_case(what, how), run_case(what, how), describe(how));
}

}  // namespace
}  // namespace gantry::testing
