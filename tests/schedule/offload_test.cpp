// Offloading to host memory: the positions of the moves in schedules, invalid positions, and the costs and
// savings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/schedule/generators/generator.h"
#include "gantry/schedule/offload_actions.h"
#include "gantry/schedule/parameter_actions.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"
#include "gantry/schedule/vocabulary_actions.h"

namespace gantry::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Offload kOffloadBoth{.state = true, .activations = true};

int count_moves(const Schedule& schedule, ActionKind kind) {
  int found = 0;
  for (const auto& row : schedule.actions)
    for (const auto& action : row) found += action.kind == kind ? 1 : 0;
  return found;
}

Schedule offload_row(const std::string& name, const std::vector<std::string>& cells) {
  Schedule made{.name = name, .microbatches = 1, .stages_of_rank = {{0}}, .actions = {{}}};
  for (const auto& cell : cells)
    for (const auto& action : parse_cell(cell, "here")) {
      made.microbatches = std::max(made.microbatches, action.microbatch + 1);
      made.actions[0].push_back(action);
    }
  return made;
}

std::string moved_text(const std::vector<Action>& row) {
  std::string text;
  for (const auto& action : row) text += (text.empty() ? "" : " ") + to_string(action);
  return text;
}

std::string offload_refusal(const Schedule& schedule) {
  try {
    validate(schedule);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Offload, MovesWithTheNextComputationAndAheadOfTheBackward) {
  const Schedule made = with_offload_actions(generate("gpipe", 1, 4), kOffloadBoth);
  EXPECT_EQ(moved_text(made.actions[0]),
            "0OFFLOAD 0F0 0OFFLOAD0 0F1 0OFFLOAD1 0F2 0OFFLOAD2 0RELOAD0 0F3 0OFFLOAD3 0RELOAD1 0B0 0RELOAD2 0B1 "
            "0RELOAD3 0B2 0RELOAD 0B3");
  EXPECT_EQ(with_offload_actions(made, {}).actions, generate("gpipe", 1, 4).actions);
}

TEST(Offload, EveryScheduleIsProvedWithIt) {
  for (const auto& generator : generators())
    for (const int ranks : {1, 2, 4})
      for (const int microbatches : {1, 3, 8}) {
        const Schedule plain = generate(generator.name, ranks, microbatches);
        const std::string label = generator.name + std::string(" ") + std::to_string(ranks);
        const Schedule with = with_offload_actions(plain, kOffloadBoth);
        EXPECT_NO_THROW(validate(with)) << label;
        EXPECT_NO_THROW(validate(lower(with))) << label;
        EXPECT_EQ(count_moves(with, ActionKind::kOffloadState), plain.stages()) << label;
        EXPECT_EQ(count_moves(with, ActionKind::kOffload), count_moves(with, ActionKind::kReload)) << label;
        const auto held = simulate(with).peak_activations, before = simulate(plain).peak_activations;
        for (int rank = 0; rank < ranks; ++rank) EXPECT_LE(held[rank], before[rank]) << label;
        const Schedule gathered = with_offload_actions(with_parameter_actions(plain, Gather::kWindow), kOffloadBoth);
        EXPECT_NO_THROW(validate(lower(gathered))) << label;
        EXPECT_EQ(with_offload_actions(forward_only(plain), kOffloadBoth), forward_only(plain)) << label;
      }
}

TEST(Offload, GoesWithPassesOfTheVocabulary) {
  for (const char* name : {"1f1b", "v_half"}) {
    const Schedule with = with_offload_actions(with_vocabulary(generate(name, 4, 8), Costs{}, 2), kOffloadBoth);
    EXPECT_NO_THROW(validate(lower(with))) << name;
    EXPECT_GT(count_moves(with, ActionKind::kOffload), 0) << name;
  }
}

TEST(Offload, TheProofRefuses) {
  EXPECT_EQ(offload_refusal(offload_row("good", {"0F0", "0OFFLOAD0", "0RELOAD0", "0B0"})), "");
  EXPECT_THAT(offload_refusal(offload_row("late", {"0F0", "0OFFLOAD0", "0B0", "0RELOAD0"})),
              HasSubstr("position 2, 0B0: the activations of the forward have been in host memory since position 1; "
                        "expected 0RELOAD0"));
  EXPECT_THAT(offload_refusal(offload_row("twice", {"0F0", "0OFFLOAD0", "0RELOAD0", "0OFFLOAD0", "0RELOAD0", "0B0"})),
              HasSubstr("position 3, 0OFFLOAD0: the same data was offloaded before"));
  EXPECT_THAT(offload_refusal(offload_row("early", {"0OFFLOAD0", "0F0", "0RELOAD0", "0B0"})),
              HasSubstr("position 0, 0OFFLOAD0: no activations of its microbatch are on the device here"));
  EXPECT_THAT(offload_refusal(offload_row("behind", {"0F0", "0B0", "0OFFLOAD0", "0RELOAD0"})),
              HasSubstr("no activations of its microbatch"));
  EXPECT_THAT(offload_refusal(offload_row("alone", {"0F0", "0RELOAD0", "0B0"})),
              HasSubstr("position 1, 0RELOAD0: no such data is in host memory"));
  EXPECT_THAT(offload_refusal(offload_row("split", {"0F0", "0OFFLOAD0", "0I0", "0RELOAD0", "0W0"})),
              HasSubstr("0I0: the activations of the forward"));
  EXPECT_THAT(offload_refusal(offload_row("state", {"0OFFLOAD", "0F0", "0B0"})),
              HasSubstr("position 0, 0OFFLOAD: the offloaded data is never reloaded; expected 0RELOAD after it"));
}

TEST(Offload, MovesTakeTimeWithTheComputations) {
  const Schedule plain = generate("gpipe", 1, 4), moved = with_offload_actions(plain, {.activations = true});
  const auto with = [&](double bandwidth) {
    Costs costs{.stages = {{.host_bandwidth = bandwidth}}};
    return simulate(moved, costs);
  };
  EXPECT_THAT(simulate(plain).peak_memory, ElementsAre(4));
  EXPECT_THAT(with(0).peak_memory, ElementsAre(2));
  EXPECT_THAT(with(0).peak_activations, ElementsAre(2));
  EXPECT_EQ(with(0).makespan_global, 12);
  EXPECT_EQ(with(2).makespan_global, 12);  // the moves are hidden
  EXPECT_EQ(with(1).makespan_global, 13);  // the first backward waits for RELOAD0, after three offloads
}

TEST(Offload, TheStateLeavesRoomWhileAStepRuns) {
  const Costs costs{.stages = {{.state = 2, .host_bandwidth = 1}}};
  const Schedule moved = with_offload_actions(generate("gpipe", 1, 4), {.state = true});
  const Simulation run = simulate(moved, costs);
  EXPECT_THAT(run.peak_memory, ElementsAre(4));  // instead of 2 + 4
  EXPECT_EQ(run.makespan_global, 12);
  EXPECT_EQ(run.memory[0].front().memory, 2);
  EXPECT_EQ(run.memory[0].back().memory, 2);
}

TEST(Offload, IsNamedByTheConfiguration) {
  EXPECT_FALSE(offload_of("none").any());
  EXPECT_TRUE(offload_of("optimizer").state && !offload_of("optimizer").activations);
  EXPECT_TRUE(offload_of("activations").activations && !offload_of("activations").state);
  EXPECT_TRUE(offload_of("both").activations && offload_of("both").state);
  EXPECT_THROW(offload_of("all"), ConfigError);
}

}  // namespace
}  // namespace gantry::schedule
