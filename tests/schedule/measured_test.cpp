// If the timeline of a simulation is used as a measurement, its costs and figures are those of the
// simulation.
#include "gantry/schedule/measured.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace gantry::schedule {
namespace {

Costs uneven_costs(int stages) {
  Costs costs;
  for (int stage = 0; stage < stages; ++stage)
    costs.stages.push_back({.forward = 1 + 0.1 * stage, .input_gradient = 1.5 - 0.1 * stage, .weight_gradient = 0.75});
  return costs;
}

TEST(Measured, CostsAreTheMeansOfEachStage) {
  for (const char* name : {"1f1b", "zb_h1", "interleaved_1f1b", "zb_v", "dualpipe_v"}) {
    const Schedule schedule = generate(name, 3, 7, std::string(name) == "1f1b" ? 1 : 0);
    const Simulation original = simulate(schedule, uneven_costs(schedule.stages()));
    const Costs costs = costs_of(original.timeline, schedule.stages());
    const Simulation again = simulate(schedule, costs);
    ASSERT_EQ(costs.stages.size(), static_cast<std::size_t>(schedule.stages()));
    EXPECT_NEAR(costs.stages[1].forward, 1.1, 1e-12) << name;
    EXPECT_NEAR(again.makespan_global, original.makespan_global, 1e-9) << name;
    EXPECT_NEAR(again.bubble_rate, original.bubble_rate, 1e-9) << name;
  }
}

// The time of each stage is divided in proportion to the forwards of its parts. Stage 0 (3.5): embedding 0.5,
// layers 2 and 1. Stage 1 (8): layer 6, head 2.
TEST(Measured, StagesTimesAreSharedOutByTheirForwards) {
  Costs costs;
  costs.stages = {{.forward = 1.0, .input_gradient = 1.5, .weight_gradient = 1.0},
                  {.forward = 2.0, .input_gradient = 6.0, .weight_gradient = 0.0}};
  const ForwardTimes forwards{{2.0 * 4, 1.0 * 4, 3.0 * 4}, 0.5 * 4, 1.0 * 4};
  const LayerWork work = work_of(costs, {{0, 2}, {2, 3}}, forwards);
  const std::vector<double> expected = {2, 1, 6};
  ASSERT_EQ(work.layers.size(), 3u);
  for (int layer = 0; layer < 3; ++layer) EXPECT_NEAR(work.layers[layer], expected[layer], 1e-12);
  EXPECT_NEAR(work.first, 0.5, 1e-12);
  EXPECT_NEAR(work.last, 2, 1e-12);
  const LayerWork head_alone = work_of(costs, {{0, 3}, {3, 3}}, {{1, 1, 1}, 0, 2});
  EXPECT_NEAR(head_alone.last, 8, 1e-12);
  EXPECT_NEAR(head_alone.layers[1], 3.5 / 3, 1e-12);
}

TEST(Measured, FiguresAreThoseOfTheTimes) {
  for (const char* name : {"gpipe", "1f1b", "zb_h1", "zb_v"}) {
    const Schedule schedule = generate(name, 4, 6);
    const Simulation original = simulate(schedule, uneven_costs(schedule.stages()));
    const Simulation figures = figures_of(original.timeline, schedule);
    EXPECT_NEAR(figures.makespan_global, original.makespan_global, 1e-9) << name;
    EXPECT_NEAR(figures.makespan_max_rank, original.makespan_max_rank, 1e-9) << name;
    EXPECT_NEAR(figures.bubble_rate, original.bubble_rate, 1e-9) << name;
    EXPECT_EQ(figures.peak_activations, original.peak_activations) << name;
  }
}

TEST(Measured, AnEmptyTimelineHasNoBubble) {
  const Simulation figures = figures_of({{}, {}}, generate("1f1b", 2, 1));
  EXPECT_EQ(figures.bubble_rate, 0);
  EXPECT_EQ(figures.makespan_global, 0);
}

TEST(Measured, PicturesShareOneScaleAndATraceHasAProcessEach) {
  const Schedule schedule = generate("1f1b", 2, 3);
  const Simulation fast = simulate(schedule), slow = simulate(schedule, {.forward = 2, .input_gradient = 2});
  const std::string svg = draw_svg_comparison(slow, fast, "two");
  EXPECT_EQ(svg.find("<svg"), 0u);
  EXPECT_THAT(svg, ::testing::HasSubstr("two, measured"));
  EXPECT_THAT(svg, ::testing::HasSubstr("two, simulated"));
  // F0 of rank 0 is twice as wide in the diagram of the slow schedule.
  std::vector<double> widths;
  for (auto at = svg.find("class=\"F\""); at != std::string::npos; at = svg.find("class=\"F\"", at + 1)) {
    const auto begin = svg.rfind("width=\"", at) + 7;
    widths.push_back(std::stod(svg.substr(begin)));
  }
  ASSERT_GE(widths.size(), 12u);
  EXPECT_NEAR((widths.front() + 1) / (widths[widths.size() - 3] + 1), 2, 0.01);
  const auto trace = nlohmann::json::parse(draw_chrome_trace_comparison(slow, fast));
  int measured = 0, simulated = 0;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X") (event["pid"] == 0 ? measured : simulated) += 1;
  EXPECT_EQ(measured, 12);
  EXPECT_EQ(simulated, 12);
}

}  // namespace
}  // namespace gantry::schedule
