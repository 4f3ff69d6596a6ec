// optimizer.name adamw_bf16: averages in bfloat16 do not depend on the layout.
#include <gtest/gtest.h>

#include "model_case.h"

namespace gantry::testing {
namespace {

TEST(Bf16States, EqualOneRankInEveryLayout) {
  ModelCase what{.layers = 4, .dropout = 0.1, .optimizer = "adamw_bf16"};
  std::vector<Parallelism> layouts = layout_grid({.tensor = {1, 2, 3}, .pipeline = {1, 2}, .data = {1, 2}});
  for (const int zero : {1, 2, 3}) {
    layouts.push_back({.layout = {.data = 3}, .microbatches = 2, .zero = zero});
    layouts.push_back({.layout = {.data = 2, .tensor = 2}, .microbatches = 3, .sequence_parallel = true, .zero = zero});
  }
  layouts.push_back({.layout = {.data = 2, .context = 2}, .zero = 3, .offload = "optimizer"});
  expect_layouts_equal(what, layouts);
}

}  // namespace
}  // namespace gantry::testing
