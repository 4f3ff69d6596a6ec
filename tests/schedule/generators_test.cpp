#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/core/error.h"
#include "gantry/schedule/schedule.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"

namespace gantry::schedule {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// "0F0 0B0", as the reference cases write a row; there BW is a full backward.
std::string row_text(const std::vector<Action>& row, bool backward_is_bw = false) {
  std::string text;
  for (const auto& action : row) {
    const std::string kind = backward_is_bw && action.kind == ActionKind::kBackward ? "BW" : to_string(action.kind);
    text += (text.empty() ? "" : " ") + std::to_string(action.stage) + kind + std::to_string(action.microbatch);
  }
  return text;
}

std::string error_of(const std::string& name, int ranks, int microbatches, int chunks, double memory_limit = 0) {
  try {
    generate(name, ranks, microbatches, chunks, {.memory_limit = memory_limit});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Generators, OrdersAreThoseOfTheReference) {
  std::ifstream file(std::string(GANTRY_SOURCE_DIR) + "/tests/golden/schedules/unit_cost.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 10u);
  for (const auto& [name, expected] : cases.items()) {
    SCOPED_TRACE(name);
    const Schedule schedule =
        schedule::generate(expected["schedule"].get<std::string>(), expected["p"].get<int>(), expected["m"].get<int>());
    ASSERT_EQ(schedule.actions.size(), expected["order"].size());
    for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank)
      EXPECT_EQ(row_text(schedule.actions[rank], true), expected["order"][rank]);
  }
}

// NeuronX Distributed's printed task lists for 4 stages and 6 microbatches.
TEST(Acceptance, D13TaskListsOfFourStagesAndSixMicrobatches) {
  const Schedule schedule = generate("1f1b", 4, 6);
  EXPECT_EQ(row_text(schedule.actions[0]), "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0B3 0B4 0B5");
  EXPECT_EQ(row_text(schedule.actions[1]), "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1B4 1B5");
  EXPECT_EQ(row_text(schedule.actions[2]), "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2B5");
  EXPECT_EQ(row_text(schedule.actions[3]), "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5");
}

TEST(OneFOneB, WarmupIsDepthMinusRank) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      const Schedule schedule = generate("1f1b", ranks, microbatches);
      validate(schedule);
      const Simulation simulation = simulate(schedule);
      for (int rank = 0; rank < ranks; ++rank) {
        const int warmup = std::min(ranks - rank - 1, microbatches);
        const auto& row = schedule.actions[rank];
        const auto first_backward = std::ranges::find(row, ActionKind::kBackward, &Action::kind) - row.begin();
        EXPECT_EQ(first_backward, std::min(warmup + 1, microbatches)) << ranks << " " << microbatches << " " << rank;
        EXPECT_EQ(simulation.peak_activations[rank], std::min(warmup + 1, microbatches));
      }
    }
  }
}

TEST(Generators, EverySizeIsValidLoweredAndForwardOnly) {
  for (const auto& name : generator_names()) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (const int microbatches : {1, 2, 3, 5, 8, 17}) {
        SCOPED_TRACE(name + " p " + std::to_string(ranks) + " m " + std::to_string(microbatches));
        const Schedule schedule = generate(name, ranks, microbatches);
        EXPECT_EQ(schedule.name, name);
        EXPECT_EQ(schedule.microbatches, microbatches);
        for (const auto& each : {schedule, lower(schedule), forward_only(schedule), lower(forward_only(schedule))})
          EXPECT_NO_THROW(validate(each));
      }
    }
  }
}

TEST(Generators, NamesAreListed) {
  EXPECT_THAT(generator_names(), Contains("gpipe"));
  EXPECT_THAT(generator_names(), Contains("1f1b"));
}

TEST(Generators, UnknownNamesAreRefusedWithTheNearest) {
  EXPECT_THAT(error_of("1f1p", 2, 2, 1), HasSubstr("did you mean '1f1b'?"));
  EXPECT_THAT(error_of("nothing_like_it", 2, 2, 1), HasSubstr("gpipe"));
  EXPECT_THAT(error_of("", 2, 2, 1), HasSubstr("'' is not known"));
}

TEST(Generators, SizesOutOfBoundsAreRefused) {
  for (const auto& name : {"gpipe", "1f1b"}) {
    EXPECT_THAT(error_of(name, 0, 2, 1), HasSubstr("the number of ranks is 0"));
    EXPECT_THAT(error_of(name, 2, 0, 1), HasSubstr("the number of microbatches is 0"));
    EXPECT_THAT(error_of(name, 2, 2, -1), HasSubstr("the number of chunks is -1"));
    EXPECT_THAT(error_of(name, 2, 2, 2), HasSubstr("2 chunks a rank are not defined for it; expected at most 1; use"));
    EXPECT_THAT(error_of(name, 2'000'000'000, 2'000'000'000, 1), HasSubstr("expected at most 10000000 forwards"));
    EXPECT_THAT(error_of(name, 2, 2, 1, 3.0), HasSubstr("no memory limit"));
    EXPECT_EQ(error_of(name, 2, 2, 0), "accepted");
    EXPECT_EQ(error_of(name, 2, 2, 1), "accepted");
  }
}

}  // namespace
}  // namespace gantry::schedule
