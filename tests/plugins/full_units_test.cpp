// Optimizers that need full rows or matrices: their step equals that of a single rank in every layout.
#include <gtest/gtest.h>

#include "model_case.h"

namespace gantry::testing {
namespace {

class FullUnits : public ::testing::TestWithParam<const char*> {
 protected:
  ModelCase with_optimizer(ModelCase what) const {
    what.optimizer = GetParam();
    what.width = 36;  // matrices of more than 4096 elements
    return what;
  }
};
INSTANTIATE_TEST_SUITE_P(Optimizers, FullUnits, ::testing::Values("muon", "adafactor", "adamw8bit"),
                         [](const auto& info) { return info.param; });

TEST_P(FullUnits, EqualOneRankInEveryLayout) {
  std::vector<Parallelism> layouts = layout_grid({.tensor = {1, 2, 3}, .pipeline = {1, 2}, .data = {1, 2}});
  for (const int zero : {1, 2, 3}) {
    layouts.push_back({.layout = {.data = 3}, .microbatches = 2, .zero = zero});
    layouts.push_back({.layout = {.data = 2, .tensor = 2}, .microbatches = 3, .sequence_parallel = true, .zero = zero});
    layouts.push_back({.layout = {.pipeline = 2, .data = 2},
                       .schedule = "zb_v",
                       .microbatches = 4,
                       .chunks = 2,
                       .recompute = "full",
                       .zero = zero});
  }
  for (const int zero : {0, 2})
    layouts.push_back({.layout = {.data = 2, .tensor = 2, .context = 2}, .microbatches = 2, .zero = zero});
  expect_layouts_equal(with_optimizer({.layers = 4, .heads = 6, .dropout = 0.1}), layouts);
}

TEST_P(FullUnits, KeyHeadsThatRanksShareAndUntiedHeads) {
  ModelCase what = with_optimizer({.family = "llama", .layers = 3, .heads = 6, .key_heads = 2});
  what.tied = false;
  expect_layouts_equal(what, {{.layout = {.tensor = 4}},
                              {.layout = {.data = 2, .tensor = 3}, .microbatches = 2, .zero = 1},
                              {.layout = {.pipeline = 3, .tensor = 2}, .microbatches = 4, .accumulation = 2}});
}

}  // namespace
}  // namespace gantry::testing
