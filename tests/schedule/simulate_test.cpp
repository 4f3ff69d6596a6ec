#include "gantry/schedule/simulate.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/core/error.h"
#include "random_schedule.h"

namespace gantry::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns the reference's order, in which BW is a full backward and B only the input gradient.
Schedule reference_order(const nlohmann::json& of) {
  Schedule schedule;
  schedule.name = of["schedule"];
  schedule.microbatches = of["m"];
  schedule.stages_of_rank = of["stage_of_rank"].get<std::vector<std::vector<int>>>();
  for (const auto& text : of["order"]) {
    std::istringstream cells(text.get<std::string>());
    auto& row = schedule.actions.emplace_back();
    for (std::string cell; cells >> cell;) {
      const std::size_t letter = cell.find_first_not_of("0123456789");
      const std::size_t end = cell.find_first_of("0123456789", letter);
      const std::string kind = cell.substr(letter, end - letter);
      const std::string ours = kind == "BW" ? "B" : kind == "B" ? "I" : kind;
      for (const Action& action : parse_cell(cell.substr(0, letter) + ours + cell.substr(end), "reference"))
        row.push_back(action);
    }
  }
  return schedule;
}

TEST(Simulate, FiguresAreThoseOfTheReferenceForItsOwnOrders) {
  std::ifstream file(std::string(GANTRY_SOURCE_DIR) + "/tests/golden/schedules/unit_cost.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 54u);
  for (const auto& [name, expected] : cases.items()) {
    SCOPED_TRACE(name);
    const Simulation simulation = simulate(reference_order(expected));
    EXPECT_EQ(simulation.makespan_global, expected["makespan_global"].get<double>());
    EXPECT_EQ(simulation.makespan_max_rank, expected["makespan_maxstage"].get<double>());
    EXPECT_NEAR(simulation.bubble_rate, expected["bubble_rate_maxstage"].get<double>(), 1e-6);
    EXPECT_EQ(simulation.peak_activations, expected["peak_act_chunks_per_rank"].get<std::vector<int>>());
  }
}

// (m + p - 1)(F + I + W), for any times without communication.
TEST(Simulate, OneFOneBTakesItsClosedForm) {
  for (int ranks = 1; ranks <= 6; ++ranks)
    for (const int microbatches : {1, 2, 5, 9}) {
      const Simulation simulation = simulate(generate("1f1b", ranks, microbatches), {1.5, 2, 0.25, 0});
      EXPECT_NEAR(simulation.makespan_global, (microbatches + ranks - 1) * 3.75, 1e-9);
      EXPECT_NEAR(simulation.bubble_rate, (ranks - 1.0) / (microbatches + ranks - 1), 1e-12);
    }
}

TEST(Simulate, HopsDelayTheNextRankAndOccupyNone) {
  const Simulation simulation = simulate(generate("gpipe", 2, 2), {1, 1, 1, 0.5});
  EXPECT_EQ(simulation.timeline[1][0].start, 1.5);
  EXPECT_EQ(simulation.timeline[0][1].start, 1);
  EXPECT_EQ(simulation.timeline[0][2].start, 6);  // 1F1 ends at 3.5, 1B0 at 5.5
  EXPECT_EQ(simulation.makespan_global, 10);
  EXPECT_EQ(simulation.makespan_max_rank, 10);
}

TEST(Simulate, MakespanOfARankStartsWithItsFirstAction) {
  const Simulation simulation = simulate(from_csv("0F0\n1F0\n", "forward"), {3, 1, 1, 0});
  EXPECT_EQ(simulation.makespan_global, 6);
  EXPECT_EQ(simulation.makespan_max_rank, 3);
  EXPECT_EQ(simulation.bubble_rate, 0);  // the work of a schedule without backwards is m F
}

TEST(Simulate, AChunkTakesItsShareOfARanksTime) {
  const Simulation simulation = simulate(from_csv("0F0,1F0,1B0,0B0\n", "two"), {4, 2, 6, 0});
  EXPECT_EQ(simulation.timeline[0][0].end, 2);
  EXPECT_EQ(simulation.timeline[0][2].end, 8);
  EXPECT_EQ(simulation.makespan_global, 12);
}

TEST(Simulate, ActivationsAreHeldUntilTheWeightGradient) {
  EXPECT_THAT(simulate(from_csv("0F0,0I0,0F1,0I1,0W0,0W1\n", "late W")).peak_activations, ElementsAre(2));
  EXPECT_THAT(simulate(from_csv("0F0,0I0,0W0,0F1,0I1,0W1\n", "early W")).peak_activations, ElementsAre(1));
  EXPECT_THAT(simulate(forward_only(generate("gpipe", 2, 5))).peak_activations, ElementsAre(1, 1));
}

TEST(Simulate, AnOverlappedPairCostsTheSumOfItsParts) {
  const Simulation simulation = simulate(from_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n", "pair"), {1, 2, 3, 0});
  EXPECT_EQ(simulation.timeline[0][1].start, 1);
  EXPECT_EQ(simulation.timeline[0][2].end, 7);
  EXPECT_EQ(simulation.makespan_global, 12);
  // Both results are sent at the pair's end, although the forward is its first part.
  const Simulation two = simulate(from_csv("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,(1F2;1B0)OVERLAP_F_B,1B1,1B2\n", "two"));
  EXPECT_EQ(two.timeline[1][3].end, 6);
  EXPECT_EQ(two.timeline[0][3].start, 6);
}

TEST(Simulate, EveryStageHasItsOwnTimesAndMessages) {
  Costs costs;
  costs.stages = {{.forward = 1, .input_gradient = 2, .weight_gradient = 3, .send_forward = 0.5},
                  {.forward = 4, .input_gradient = 5, .weight_gradient = 6, .send_backward = 0.25}};
  const Simulation simulation = simulate(from_csv("0F0,0I0,0W0\n1F0,1B0\n", "own"), costs);
  EXPECT_EQ(simulation.timeline[1][0].start, 1.5);
  EXPECT_EQ(simulation.timeline[1][1].end, 16.5);  // 1.5 + 4 + (5 + 6)
  EXPECT_EQ(simulation.timeline[0][1].start, 16.75);
  EXPECT_EQ(simulation.makespan_global, 21.75);  // with an optimizer barrier
  EXPECT_EQ(simulation.makespan_max_rank, 21.75);
  EXPECT_DOUBLE_EQ(simulation.bubble_rate, (21.75 - (6 + 15) / 2.0) / 21.75);
}

TEST(Simulate, EqualCostsByStageAreCostsOfTheRank) {
  const Schedule schedule = generate("zb_v", 3, 7);
  Costs by_stage;
  by_stage.stages.assign(6, {0.5, 0.75, 0.25, 0.125, 0.125});
  const Simulation expected = simulate(schedule, {1, 1.5, 0.5, 0.125});
  const Simulation found = simulate(schedule, by_stage);
  EXPECT_EQ(found.makespan_global, expected.makespan_global);
  EXPECT_EQ(found.makespan_max_rank, expected.makespan_max_rank);
  EXPECT_NEAR(found.bubble_rate, expected.bubble_rate, 1e-12);
}

TEST(Simulate, MemoryIsThatOfActivationsAndOfTheInputsOfWeights) {
  Costs costs;
  costs.stages = {{.activation = 10, .weight_input = 4}};
  EXPECT_THAT(simulate(from_csv("0F0,0I0,0F1,0I1,0W0,0W1\n", "late W"), costs).peak_memory, ElementsAre(14));
  EXPECT_THAT(simulate(from_csv("0F0,0F1,0B0,0B1\n", "whole"), costs).peak_memory, ElementsAre(20));
  costs.stages[0].weight_input = 25;
  EXPECT_THAT(simulate(from_csv("0F0,0I0,0W0\n", "large inputs"), costs).peak_memory, ElementsAre(25));
  const Simulation counted = simulate(generate("zb_h2", 4, 9));
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(counted.peak_memory[rank], counted.peak_activations[rank]);
}

TEST(Simulate, CostsOfSomeStagesAloneAreRefused) {
  Costs costs;
  costs.stages.resize(3);
  EXPECT_THROW(simulate(generate("1f1b", 2, 2), costs), ConfigError);
}

TEST(Simulate, RandomTimelinesObeyTheDataAndKeepRanksBusyOnce) {
  testing::RandomSchedule random(3);
  for (int i = 0; i < 300; ++i) {
    const Schedule schedule = random.make(4, 3, 5);
    const Simulation simulation = simulate(schedule, {1, 2, 0.5, 0.25});
    std::map<std::string, double> end;
    for (const auto& lane : simulation.timeline)
      for (const auto& timed : lane) end[to_string(timed.action)] = timed.end;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const auto& lane = simulation.timeline[rank];
      ASSERT_EQ(lane.size(), schedule.actions[rank].size());
      for (std::size_t k = 0; k < lane.size(); ++k) {
        const auto& [action, start, stop] = lane[k];
        EXPECT_EQ(action, schedule.actions[rank][k]);
        if (k > 0) {
          EXPECT_GE(start, lane[k - 1].end);
        }
        if (action.kind != ActionKind::kForward || action.stage == 0) continue;
        const double hop = schedule.rank_of(action.stage - 1) == rank ? 0 : 0.25;
        EXPECT_GE(start, end.at(to_string(Action{ActionKind::kForward, action.stage - 1, action.microbatch})) + hop);
      }
    }
  }
}

TEST(Simulate, MessagesAndBrokenSchedulesAreRefused) {
  EXPECT_THROW(simulate(lower(generate("1f1b", 2, 2))), ConfigError);
  EXPECT_THROW(simulate(from_csv("0B0,0F0\n", "broken")), ConfigError);
}

}  // namespace
}  // namespace gantry::schedule
