// Irregular batches in every pair of ZeRO, schedule, recomputation, accumulation, layout and criterion: one rank's
// numbers in float64, and close ones in lower precisions.
#include <gtest/gtest.h>

#include "gantry/core/config/schedule_names.h"
#include "grid.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

std::vector<Parallelism> irregular_layouts() {
  const std::vector<Layout> layouts = {
      {.data = 3}, {.data = 2, .tensor = 2}, {.pipeline = 2, .data = 2}, {.pipeline = 2, .data = 2, .tensor = 2}};
  const std::vector<std::string> schedules = {"1f1b", "gpipe", "zb_h1", "interleaved_1f1b", "zb_v"};
  const std::vector<std::string> recomputes = {"none", "selective", "full"};
  const std::vector<int> accumulations = {1, 3}, zeros = {0, 1, 2, 3}, microbatches = {1, 2};
  std::vector<Parallelism> all;
  for (const GridRow& row : grid_rows({zeros.size(), schedules.size(), recomputes.size(), accumulations.size(),
                                       layouts.size(), microbatches.size()})) {
    Parallelism how{.layout = layouts[row[4]],
                    .schedule = schedules[row[1]],
                    .microbatches = microbatches[row[5]],
                    .recompute = recomputes[row[2]],
                    .zero = zeros[row[0]],
                    .accumulation = accumulations[row[3]]};
    if (how.layout.pipeline == 1) how.schedule = "1f1b";
    how.chunks = how.schedule == "interleaved_1f1b" ? 2 : default_chunks(how.schedule);
    all.push_back(how);
  }
  return all;
}

TEST(IrregularGrid, EqualsOneRank) {
  for (const char* family : {"gpt2", "llama"})
    expect_layouts_equal({.family = family, .layers = 4, .batches = {6, 6, 5}, .irregular = true}, irregular_layouts());
}

TEST(IrregularGrid, LowPrecisionsAreClose) {
  for (const auto& [precision, tolerance] : {std::pair("float32", 2e-5), {"bfloat16", 0.05}, {"float16", 0.02}}) {
    const ModelCase what{.layers = 4, .batches = {6, 5}, .precision = precision, .lr = 1e-3, .irregular = true};
    const CaseResult expected = run_case(what, {}, "local");
    for (const GridRow& row : grid_rows({4, 2, 2})) {
      Parallelism how{
          .layout = {.data = 3}, .recompute = row[1] == 0 ? "none" : "full", .zero = static_cast<int>(row[0])};
      if (row[2] == 1) {
        how.layout = {.pipeline = 2, .data = 2};
        how.schedule = "zb_h1";
        how.microbatches = how.accumulation = 2;
      }
      const CaseResult got = run_case(what, how);
      for (std::size_t step = 0; step < expected.losses.size(); ++step) {
        EXPECT_NEAR(got.losses[step], expected.losses[step], tolerance * expected.losses[step])
            << precision << " " << describe(how);
        EXPECT_NEAR(got.norms[step], expected.norms[step], tolerance * expected.norms[step])
            << precision << " " << describe(how);
      }
    }
  }
}

}  // namespace
}  // namespace gantry::testing
