// Irregular batches in every pair of ZeRO, schedule, recomputation, accumulation, layout and criterion: one rank's
// numbers in float64, and close ones in lower precisions.
#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <set>

#include "gantry/core/schedule_names.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

using Choice = std::vector<std::size_t>;  // an index for each axis

// Rows in which each pair of values of two axes appears together; greedy.
std::vector<Choice> pairwise(const std::vector<std::size_t>& sizes) {
  std::vector<Choice> all = {{}};
  for (const std::size_t size : sizes) {
    std::vector<Choice> longer;
    for (const Choice& row : all)
      for (std::size_t value = 0; value < size; ++value) {
        longer.push_back(row);
        longer.back().push_back(value);
      }
    all = std::move(longer);
  }
  using Pair = std::array<std::size_t, 4>;  // two axes and their values
  const auto pairs_of = [](const Choice& row) {
    std::vector<Pair> pairs;
    for (std::size_t a = 0; a < row.size(); ++a)
      for (std::size_t b = a + 1; b < row.size(); ++b) pairs.push_back({a, b, row[a], row[b]});
    return pairs;
  };
  std::set<Pair> open;
  for (const Choice& row : all)
    for (const Pair& pair : pairs_of(row)) open.insert(pair);
  std::vector<Choice> rows;
  while (!open.empty()) {
    const auto gain = [&](const Choice& row) {
      const auto pairs = pairs_of(row);
      return std::ranges::count_if(pairs, [&](const Pair& pair) { return open.contains(pair); });
    };
    rows.push_back(*std::ranges::max_element(all, {}, gain));
    for (const Pair& pair : pairs_of(rows.back())) open.erase(pair);
  }
  return rows;
}

std::vector<Parallelism> irregular_layouts() {
  const std::vector<Layout> layouts = {
      {.data = 3}, {.data = 2, .tensor = 2}, {.pipeline = 2, .data = 2}, {.pipeline = 2, .data = 2, .tensor = 2}};
  const std::vector<std::string> schedules = {"1f1b", "gpipe", "zb_h1", "interleaved_1f1b", "zb_v"};
  const std::vector<std::string> recomputes = {"none", "selective", "full"};
  const std::vector<int> accumulations = {1, 3}, zeros = {0, 1, 2, 3}, microbatches = {1, 2};
  std::vector<Parallelism> all;
  for (const Choice& row : pairwise({zeros.size(), schedules.size(), recomputes.size(), accumulations.size(),
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
    for (const int zero : {0, 1, 2, 3})
      for (const char* recompute : {"none", "full"})
        for (const Parallelism& how : {Parallelism{.layout = {.data = 3}, .recompute = recompute, .zero = zero},
                                       Parallelism{.layout = {.pipeline = 2, .data = 2},
                                       .schedule = "zb_h1",
                                       .microbatches = 2,
                                       .recompute = recompute,
                                       .zero = zero,
                                       .accumulation = 2}}) {
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
