// Properties of every generator, with random sizes, chunks, times, limits and group sizes.
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <map>

#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"
#include "random_schedule.h"

namespace gantry::schedule {
namespace {

using testing::Judge;
using testing::RandomSchedule;

// Maximum number of chunk activations on a rank, for the schedules that guarantee one.
const std::map<std::string, std::function<int(int ranks)>> kLimits = {
    {"1f1b", [](int p) { return p; }},
    {"zb_h1", [](int p) { return p; }},
    {"zb_h2", [](int p) { return 2 * p - 1; }},
    {"zb_v", [](int p) { return 2 * p; }},
    {"v_half", [](int p) { return p + 2; }},
    {"v_min", [](int p) { return 2 * ((p + 1) / 3) + 2; }},
    {"v_1f1b", [](int p) { return 2 * (2 * p / 3) + 2; }},
    {"dualpipe_v", [](int p) { return 2 * p + 2; }}};

class EveryGenerator : public ::testing::TestWithParam<std::string> {};

void expect_sound(const Schedule& schedule) {
  EXPECT_NO_THROW(validate(schedule));
  EXPECT_TRUE(Judge(schedule).is_valid());
  const Schedule lowered = lower(schedule);
  EXPECT_NO_THROW(validate(lowered));
  EXPECT_TRUE(Judge(lowered).is_valid());
  EXPECT_EQ(compute_only(lowered), schedule);
}

TEST_P(EveryGenerator, MakesSoundSchedulesOfAnySizes) {
  RandomSchedule random(11);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const Schedule schedule = random.make(GetParam(), 9, 20);
    SCOPED_TRACE(::testing::Message() << schedule.ranks() << " ranks, " << schedule.stages() << " stages, "
                                      << schedule.microbatches << " microbatches");
    expect_sound(schedule);
    expect_sound(forward_only(schedule));
    expect_sound(first_microbatches(schedule, 1 + random.below(schedule.microbatches)));
    const auto peaks = simulate(schedule).peak_activations;
    if (const auto limit = kLimits.find(GetParam()); limit != kLimits.end())
      EXPECT_LE(std::ranges::max(peaks), limit->second(schedule.ranks()));
  }
}

TEST_P(EveryGenerator, IsAPureFunction) {
  for (int seed = 0; seed < 5; ++seed)
    EXPECT_EQ(RandomSchedule(seed).make(GetParam(), 6, 12), RandomSchedule(seed).make(GetParam(), 6, 12));
}

TEST_P(EveryGenerator, NeverBeatsTheWorkThatItHolds) {
  RandomSchedule random(5);
  for (int i = 0; i < 20; ++i) {
    const Schedule schedule = random.make(GetParam(), 6, 12);
    const Costs costs{random.between(0.5, 2), random.between(0.5, 2), random.between(0.5, 2), random.between(0, 0.5)};
    const Simulation simulation = simulate(schedule, costs);
    const double work = schedule.microbatches * (costs.forward + costs.input_gradient + costs.weight_gradient);
    EXPECT_GE(simulation.makespan_max_rank, work * (1 - 1e-9));
    EXPECT_GE(simulation.makespan_global, simulation.makespan_max_rank * (1 - 1e-9));
    EXPECT_GE(simulation.bubble_rate, -1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, EveryGenerator, ::testing::ValuesIn(generator_names()),
                         [](const auto& named) { return "of_" + named.param; });

}  // namespace
}  // namespace gantry::schedule
