// The grid over schedules, chunks and recomputation: every schedule gives one rank's numbers, with any split
// and any recomputation.
#include <gtest/gtest.h>

#include "gantry/core/config/schedule_names.h"
#include "gantry/schedule/generators/generator.h"
#include "grid.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

const ModelCase kDeep{.layers = 12, .width = 16, .dropout = 0.1};

std::vector<Parallelism> every_schedule(const std::vector<int>& pipelines, const std::vector<int>& microbatches) {
  std::vector<std::pair<std::string, int>> schedules;
  for (const auto& generator : schedule::generators())
    for (int chunks = generator.default_chunks; chunks <= std::min(3, generator.max_chunks); ++chunks)
      schedules.emplace_back(generator.name, chunks);
  std::vector<Parallelism> all;
  for (const GridRow& row : grid_rows({schedules.size(), pipelines.size(), microbatches.size()})) {
    const auto& [name, chunks] = schedules[row[0]];
    all.push_back({{.pipeline = pipelines[row[1]]}, name, microbatches[row[2]], false, chunks, "none"});
  }
  return all;
}

TEST(ScheduleGrid, NamesOfTheConfigurationAreThoseOfTheGenerators) {
  for (const auto& generator : schedule::generators()) {
    EXPECT_EQ(default_chunks(generator.name), generator.default_chunks) << generator.name;
    EXPECT_TRUE(std::ranges::any_of(schedule_names(), [&](const auto& known) { return known.name == generator.name; }))
        << generator.name;
  }
  EXPECT_EQ(schedule_names().size(), schedule::generators().size());
}

TEST(ScheduleGrid, EverySchedule) { expect_layouts_equal(kDeep, every_schedule({2, 3, 4}, {1, 2, 3, 5, 6})); }

TEST(ScheduleGrid, WithTensorAndDataParallelismAndRecomputation) {
  std::vector<Parallelism> layouts;
  std::size_t index = 0;
  for (Parallelism how : every_schedule({2}, {4}))
    for (const std::string& recompute : turn_of<std::string>(index++, 3, {"selective", "parts", "full"})) {
      how.layout = {.pipeline = 2, .data = 2, .tensor = 2};
      how.recompute = recompute;
      how.sequence_parallel = recompute == "full";
      layouts.push_back(how);
    }
  expect_layouts_equal(kDeep, layouts);
}

TEST(ScheduleGrid, RecomputationOfEveryModel) {
  for (const char* family : {"gpt2", "llama", "bert"})
    for (const char* recompute : {"selective", "parts", "full"})
      expect_layouts_equal({.family = family, .dropout = 0.1},
                           {{{}, "1f1b", 1, false, 1, recompute},
                            {{.pipeline = 2, .data = 1, .tensor = 2}, "1f1b", 3, true, 1, recompute},
                            {{.pipeline = 3, .data = 1, .tensor = 3}, "gpipe", 2, false, 1, recompute}});
}

TEST(ScheduleGrid, RecomputationOfSomeLayersOfEachStage) {
  for (const char* recompute : {"selective", "parts", "full"})
    expect_layouts_equal({.layers = 5, .dropout = 0.1},
                         {{{}, "1f1b", 1, false, 1, recompute, {2}},
                          {{.pipeline = 2, .data = 1, .tensor = 2}, "1f1b", 3, true, 1, recompute, {2, 1}},
                          {{.pipeline = 2}, "zb_v", 3, false, 2, recompute, {1, 0, 2, 0}},
                          {{.pipeline = 2, .data = 2}, "interleaved_1f1b", 2, false, 2, recompute, {0, 1, 1, 1}}});
}

TEST(ScheduleGrid, SchedulesGiveOneRanksBitsUntiedWithoutClipping) {
  const ModelCase what{.layers = 8, .tied = false, .clip = 1e9, .precision = "float32"};
  const CaseResult expected = run_case(what, {.microbatches = 6});
  // breadth_first runs the last microbatch's backward first, so it adds in another order.
  const LayoutAxes axes{
      .pipeline = {2, 4},
      .schedules = {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_h2", "zb_v", "v_half", "dualpipe_v"},
      .microbatches = {6}};
  for (const Parallelism& how : layouts_to_run(layout_grid(axes)))
    expect_identical(expected, run_case(what, how), describe(how));
}

}  // namespace
}  // namespace gantry::testing
