// Gathers, releases and reductions of parameters that are sharded over replicas, under every schedule: their
// positions, invalid positions, and their costs.
#include "gantry/schedule/parameter_actions.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/schedule/extra_actions.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"
#include "random_schedule.h"

namespace gantry::schedule {
namespace {

using ::testing::HasSubstr;
using testing::RandomSchedule;

constexpr Gather kGathers[] = {Gather::kStep, Gather::kWindow, Gather::kMicrobatch, Gather::kAround};

std::string refusal_of(const Schedule& schedule) {
  try {
    validate(schedule);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "valid";
}

std::string placed(const std::string& csv, Gather gather) {
  return to_csv(with_parameter_actions(from_csv(csv, "mine"), gather));
}

// Judges only the extra actions, by their text, without the code of validate(). Tracks the stages that a rank
// holds unsharded, and the actions that will still add to the gradients of a stage.
bool extras_are_sound(const Schedule& schedule) {
  bool any = false;
  for (const auto& row : schedule.actions)
    for (const auto& action : row)
      any = any || to_string(action).find("SHARD") != std::string::npos ||
            to_string(action).find("REDUCE") != std::string::npos;
  if (!any) return true;
  for (const auto& row : schedule.actions) {
    std::set<int> full, reduced;
    std::map<int, int> to_come;
    for (const auto& action : row) {
      const std::string kind = to_string(action.kind);
      if (kind == "B" || kind == "W") ++to_come[action.stage];
    }
    const auto with_gradients = to_come;
    for (const auto& action : row) {
      const std::string kind = to_string(action.kind);
      if ((kind == "F" || kind == "B" || kind == "I") && !full.contains(action.stage)) return false;
      if (kind == "B" || kind == "W") --to_come[action.stage];
      if (kind == "UNSHARD" && !full.insert(action.stage).second) return false;
      if (kind == "RESHARD" && full.erase(action.stage) == 0) return false;
      if (kind == "REDUCE_GRAD" &&
          (!with_gradients.contains(action.stage) || to_come[action.stage] > 0 || !reduced.insert(action.stage).second))
        return false;
    }
    if (!full.empty() || reduced.size() != with_gradients.size()) return false;
  }
  return true;
}

TEST(ParameterActions, StandWhereTheRuleSays) {
  const std::string one = "0F0,0F1,0B0,0B1\n";
  EXPECT_EQ(placed(one, Gather::kStep), "0UNSHARD,0F0,0F1,0B0,0B1,0REDUCE_GRAD,0RESHARD\n");
  EXPECT_EQ(placed(one, Gather::kWindow), placed(one, Gather::kStep));
  EXPECT_EQ(placed(one, Gather::kMicrobatch),
            "0UNSHARD,0F0,0RESHARD,0UNSHARD,0F1,0RESHARD,0UNSHARD,0B0,0RESHARD,0UNSHARD,0B1,0RESHARD,0REDUCE_GRAD\n");
  // W needs no parameters, so they are released after the last I.
  EXPECT_EQ(placed("0F0,0I0,0F1,0I1,0W0,0W1\n", Gather::kStep),
            "0UNSHARD,0F0,0I0,0F1,0I1,0RESHARD,0W0,0W1,0REDUCE_GRAD\n");
  // Three stages of a rank: two are unsharded at a time, the next one ahead of its use.
  EXPECT_EQ(placed("0F0,1F0,2F0,2B0,1B0,0B0\n", Gather::kWindow),
            "0UNSHARD,1UNSHARD,0F0,0RESHARD,2UNSHARD,1F0,2F0,2B0,2REDUCE_GRAD,2RESHARD,0UNSHARD,1B0,1REDUCE_GRAD,"
            "1RESHARD,0B0,0REDUCE_GRAD,0RESHARD\n");
  EXPECT_EQ(placed("(0F0;1B0)OVERLAP_F_B\n", Gather::kMicrobatch),
            "0UNSHARD,1UNSHARD,(0F0;1B0)OVERLAP_F_B,0RESHARD,1RESHARD,1REDUCE_GRAD\n");
  EXPECT_EQ(placed("0F0,1F0\n", Gather::kMicrobatch), "0UNSHARD,0F0,0RESHARD,1UNSHARD,1F0,1RESHARD\n");
  EXPECT_EQ(placed("1F0,0F0,1B0,0B0\n", Gather::kAround),
            "0UNSHARD,1UNSHARD,1F0,0F0,1B0,0B0,0RESHARD,1RESHARD,0REDUCE_GRAD,1REDUCE_GRAD\n");
}

TEST(ParameterActions, AutoIsAWindowUnderAPipeline) {
  EXPECT_EQ(gather_of("auto", 1), Gather::kMicrobatch);
  EXPECT_EQ(gather_of("auto", 2), Gather::kWindow);
  EXPECT_EQ(gather_of("step", 2), Gather::kStep);
  EXPECT_THROW(gather_of("once", 2), ConfigError);
}

int count(const Schedule& schedule, ActionKind kind) {
  int found = 0;
  for (const auto& row : schedule.actions) found += static_cast<int>(std::ranges::count(row, kind, &Action::kind));
  return found;
}

Schedule without_extras(Schedule schedule) {
  for (auto& row : schedule.actions) std::erase_if(row, [](const Action& action) { return action.is_extra(); });
  return schedule;
}

// Every schedule of the registry, in several sizes: written and read as text, lowered and simulated.
TEST(ParameterActions, AreProvedUnderEverySchedule) {
  for (const auto& name : generator_names())
    for (const int ranks : {1, 2, 3})
      for (const int microbatches : {1, 2, 7})
        for (const Gather gather : kGathers)
          for (const bool trains : {true, false}) {
            Schedule plain = generate(name, ranks, microbatches);
            if (!trains) plain = forward_only(plain);
            const Schedule with = with_parameter_actions(plain, gather);
            const std::string label = name + "\n" + to_csv(with);
            ASSERT_EQ(refusal_of(with), "valid") << label;
            ASSERT_TRUE(extras_are_sound(with)) << label;
            EXPECT_EQ(without_extras(with), plain) << label;
            EXPECT_EQ(with_parameter_actions(with, gather), with) << label;
            EXPECT_EQ(to_csv(from_csv(to_csv(with), "read")), to_csv(with));
            EXPECT_EQ(count(with, ActionKind::kReduceGradient), trains ? plain.stages() : 0) << label;
            if (gather == Gather::kStep) EXPECT_EQ(count(with, ActionKind::kUnshard), plain.stages()) << label;
            const Schedule lowered = lower(with);
            EXPECT_EQ(refusal_of(lowered), "valid") << to_csv(lowered);
            EXPECT_EQ(without_messages(lowered), with) << to_csv(lowered);
            EXPECT_NO_THROW(validate_replicas({with, with, with})) << label;
            const Simulation alone = simulate(plain), extra = simulate(with);
            EXPECT_EQ(extra.timeline.size(), alone.timeline.size());
            EXPECT_EQ(extra.makespan_global, alone.makespan_global) << label;  // gathers cost nothing here
          }
}

TEST(ParameterActions, WhatIsBrokenIsRefusedByName) {
  const auto error_of = [](const std::string& csv) { return refusal_of(from_csv(csv, "mine")); };
  EXPECT_EQ(error_of("0UNSHARD,0F0,0RESHARD,0B0,0REDUCE_GRAD\n"),
            "schedule mine, rank 0, position 3, 0B0: the parameters of stage 0 are not gathered; expected 0UNSHARD "
            "before it, without a RESHARD in between");
  EXPECT_THAT(error_of("0F0,0UNSHARD,0B0,0RESHARD,0REDUCE_GRAD\n"), HasSubstr("position 0, 0F0: the parameters of"));
  EXPECT_EQ(error_of("0UNSHARD,0F0,0UNSHARD,0B0,0RESHARD,0REDUCE_GRAD\n"),
            "schedule mine, rank 0, position 2, 0UNSHARD: the stage has been gathered since position 0; expected one "
            "UNSHARD");
  EXPECT_EQ(
      error_of("0UNSHARD,0F0,0B0,0REDUCE_GRAD\n"),
      "schedule mine, rank 0, position 0, 0UNSHARD: stage 0 is never released after it; expected a RESHARD after it");
  EXPECT_THAT(error_of("0RESHARD,0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD\n"),
              HasSubstr("position 0, 0RESHARD: the stage is not gathered"));
  EXPECT_EQ(error_of("0UNSHARD,0F0,0B0,0RESHARD\n"),
            "schedule mine, rank 0: 0REDUCE_GRAD is missing; expected one such action, after 0B0");
  EXPECT_EQ(error_of("0UNSHARD,0F0,0I0,0RESHARD,0REDUCE_GRAD,0W0\n"),
            "schedule mine, rank 0, position 4, 0REDUCE_GRAD: the action precedes 0W0 (position 5), which adds to the "
            "gradients; expected a position after that action");
  EXPECT_THAT(error_of("0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD,0REDUCE_GRAD\n"),
              HasSubstr("position 5, 0REDUCE_GRAD: the gradients have been reduced at position 4 already"));
  EXPECT_THAT(error_of("0UNSHARD,0F0,0RESHARD,0REDUCE_GRAD\n"), HasSubstr("0REDUCE_GRAD: the stage has no gradients"));
  EXPECT_THAT(error_of("0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD,1UNSHARD\n"), HasSubstr("1F0 is missing"));
  EXPECT_THAT(error_of("0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD\n1F0,1B0\n"),
              HasSubstr("rank 1, position 0, 1F0: the parameters of stage 1 are not gathered"));
}

// --- Random schedules ---

int position_of_extra(const std::vector<Action>& row, RandomSchedule& random) {
  std::vector<int> extras;
  for (int i = 0; i < static_cast<int>(row.size()); ++i)
    if (row[i].is_extra()) extras.push_back(i);
  return extras[random.below(static_cast<int>(extras.size()))];
}

// Returns false directly before the second action of a pair, where nothing can be inserted.
bool is_place(const std::vector<Action>& row, int position) {
  return position == 0 || !row[position - 1].overlaps_next;
}

std::string mutate_extras(Schedule& schedule, RandomSchedule& random) {
  auto& row = schedule.actions[random.below(schedule.ranks())];
  const int from = position_of_extra(row, random);
  const Action action = row[from];
  const auto insert = [&](const Action& one) {
    int to = random.below(static_cast<int>(row.size()) + 1);
    while (!is_place(row, to)) --to;
    row.insert(row.begin() + to, one);
  };
  switch (random.below(4)) {
    case 0:  // moved to another position
      row.erase(row.begin() + from);
      insert(action);
      break;
    case 1:
      row.erase(row.begin() + from);
      break;
    case 2:
      insert(action);
      break;
    default: {  // released for a while
      int to = random.below(static_cast<int>(row.size()) + 1);
      while (!is_place(row, to)) --to;
      const Action again{ActionKind::kUnshard, action.stage, kNoMicrobatch};
      const Action released{ActionKind::kReshard, action.stage, kNoMicrobatch};
      row.insert(row.begin() + to, again);
      row.insert(row.begin() + to, released);
    }
  }
  return std::to_string(action.stage);
}

// With GANTRY_LONG=1, a thousand valid and a thousand invalid schedules.
TEST(ParameterActions, RandomSchedulesAreProvedAndBrokenOnesRefused) {
  RandomSchedule random(27);
  const int each = std::getenv("GANTRY_LONG") != nullptr ? 1000 : 200;
  int valid = 0, refused = 0;
  for (int i = 0; valid < each || refused < each; ++i) {
    ASSERT_LT(i, 20'000);
    Schedule plain =
        i % 2 == 0 ? random.make(4, 3, 5) : random.make(generator_names()[i / 2 % generator_names().size()], 4, 5);
    Schedule schedule = with_parameter_actions(plain, kGathers[random.below(4)]);
    for (int n = 1 + random.below(3); n > 0; --n) mutate_extras(schedule, random);
    const bool sound = extras_are_sound(schedule);
    const std::string said = refusal_of(schedule);
    ASSERT_EQ(said == "valid", sound) << said << "\n" << to_csv(schedule);
    if (sound) {
      ++valid;
      const Simulation simulation = simulate(schedule);
      for (int rank = 0; rank < schedule.ranks(); ++rank)
        ASSERT_EQ(simulation.timeline[rank].size() + simulation.extra[rank].size(), schedule.actions[rank].size());
      ASSERT_EQ(refusal_of(lower(schedule)), "valid") << to_csv(schedule);
    } else {
      ++refused;
      ASSERT_TRUE(said.starts_with("schedule ") && said.find(", rank ") != std::string::npos) << said;
      ASSERT_TRUE(said.find("SHARD") != std::string::npos || said.find("REDUCE_GRAD") != std::string::npos) << said;
    }
  }
}

// --- Costs ---

Costs gather_costs(int stages) {
  Costs costs;
  costs.stages.assign(stages, {.forward = 1,
                               .input_gradient = 1,
                               .weight_gradient = 1,
                               .activation = 1,
                               .weight_input = 1,
                               .unshard = 0.5,
                               .reduce = 2,
                               .unshard_bytes = 10,
                               .reduce_bytes = 20,
                               .parameters = 100,
                               .gradients = 200});
  return costs;
}

TEST(ParameterActions, AreSimulatedWithWhatIsComputed) {
  const Schedule schedule = with_parameter_actions(from_csv("0F0,1F0,1B0,0B0\n", "mine"), Gather::kWindow);
  const Simulation simulation = simulate(schedule, gather_costs(2));
  const auto& computed = simulation.timeline[0];
  ASSERT_EQ(computed.size(), 4u);
  EXPECT_EQ(computed[0].start, 0.5);  // waits for its gather
  EXPECT_EQ(computed[1].start, 1.5);  // gathered while stage 0 was computed
  EXPECT_EQ(computed[3].end, 6.5);
  const auto& extra = simulation.extra[0];
  ASSERT_EQ(extra.size(), 6u);
  EXPECT_EQ(to_string(extra[1].action), "1UNSHARD");
  EXPECT_EQ(extra[1].start, 0.5);
  EXPECT_EQ(to_string(extra[2].action), "1REDUCE_GRAD");
  EXPECT_EQ(extra[2].start, 4.5);
  EXPECT_EQ(to_string(extra[4].action), "0REDUCE_GRAD");
  EXPECT_EQ(extra[4].end, 8.5);
  EXPECT_EQ(simulation.makespan_max_rank, 8.5);
  EXPECT_EQ(simulation.extra_bytes[0], 60);
  // Stage 0 is unsharded and has its activation. Stage 1's gradients are being reduced while stage 0's are
  // computed.
  EXPECT_EQ(simulation.peak_memory[0], 100 + 1 + 200 + 200);
  EXPECT_EQ(simulation.memory[0].back().time, 8.5);
  EXPECT_EQ(simulation.memory[0].back().memory, 0);
}

TEST(ParameterActions, ReleasedEarlyHoldLessAndGatherMore) {
  const Schedule plain = generate("interleaved_1f1b", 2, 4, 3);
  double last_peak = 1e9, last_bytes = 0;
  for (const Gather gather : {Gather::kStep, Gather::kWindow, Gather::kMicrobatch}) {
    Costs costs = gather_costs(6);
    for (auto& stage : costs.stages) stage.gradients = 0;
    const Simulation simulation = simulate(with_parameter_actions(plain, gather), costs);
    EXPECT_LT(simulation.peak_memory[0], last_peak);
    EXPECT_GT(simulation.extra_bytes[0], last_bytes);
    last_peak = simulation.peak_memory[0];
    last_bytes = simulation.extra_bytes[0];
  }
}

TEST(ParameterActions, AreDrawnBelowTheirRank) {
  const Schedule schedule = with_parameter_actions(generate("1f1b", 2, 3), Gather::kMicrobatch);
  const Simulation simulation = simulate(schedule, gather_costs(2));
  EXPECT_THAT(draw_text(simulation), HasSubstr(" extra |U"));
  EXPECT_THAT(draw_text(simulation), HasSubstr("UNSHARD gather of parameters"));
  EXPECT_THAT(draw_svg(simulation, "title"), HasSubstr("rank 1: gather of parameters of stage 1, "));
  EXPECT_THAT(draw_svg(simulation, "title"), HasSubstr("rank 0: reduction of gradients of stage 0, "));
  EXPECT_THAT(draw_chrome_trace(simulation), HasSubstr("\"rank 1, extra actions\""));
  EXPECT_THAT(draw_text(simulate(generate("1f1b", 2, 3))), ::testing::Not(HasSubstr("extra")));
}

// --- Replicas ---

std::string refusal_of(const std::vector<Schedule>& replicas) {
  try {
    validate_replicas(replicas);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "valid";
}

TEST(ParameterActions, OfReplicasMeetInOneOrder) {
  const auto with = [](int microbatches, Gather gather) {
    return with_parameter_actions(generate("interleaved_1f1b", 2, microbatches, 2), gather);
  };
  EXPECT_EQ(refusal_of({with(3, Gather::kStep), with(3, Gather::kStep)}), "valid");
  EXPECT_THAT(refusal_of({with(3, Gather::kMicrobatch), with(2, Gather::kMicrobatch)}),
              HasSubstr("use the same number of microbatches for all replicas"));
  // Replicas with different numbers of microbatches gather once, around all of them.
  EXPECT_EQ(refusal_of({with(3, Gather::kAround), with(1, Gather::kAround), with(2, Gather::kAround)}), "valid");
  const auto first = from_csv("0UNSHARD,1UNSHARD,0F0,1F0,0RESHARD,1RESHARD\n", "mine");
  const auto second = from_csv("1UNSHARD,0UNSHARD,0F0,1F0,0RESHARD,1RESHARD\n", "mine");
  EXPECT_EQ(refusal_of({first, second}),
            "schedule mine, rank 0: deadlock: replica 0 is at position 0, 0UNSHARD, while replica 1 is at position 0, "
            "1UNSHARD; expected the same gathers and reductions in the same order on all replicas; use the same number "
            "of microbatches for all replicas");
}

}  // namespace
}  // namespace gantry::schedule
