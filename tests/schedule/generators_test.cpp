#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "gantry/core/error.h"
#include "gantry/schedule/schedule.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"

namespace gantry::schedule {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Returns a row in the notation of the reference cases, such as "0F0 0B0". `backward_is_bw`: a full backward
// is written BW.
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

nlohmann::json golden(const std::string& name) {
  std::ifstream file(std::string(GANTRY_SOURCE_DIR) + "/tests/golden/schedules/" + name);
  return nlohmann::json::parse(file);
}

// In the reference, B is the input gradient of a split backward, and BW is a full backward.
std::string reference_text(const std::vector<Action>& row) {
  std::string text;
  for (const auto& action : row) {
    std::string kind = to_string(action.kind);
    if (kind == "B") kind = "BW";
    if (kind == "I") kind = "B";
    text += (text.empty() ? "" : " ") + std::to_string(action.stage) + kind + std::to_string(action.microbatch);
  }
  return text;
}

int largest(const std::vector<int>& values) { return *std::max_element(values.begin(), values.end()); }

// Returns Gantry's schedule for a case of unit_cost.json.
Schedule schedule_of(const nlohmann::json& expected) {
  static const std::map<std::string, std::pair<std::string, int>> kOurs = {
      {"zbv", {"zb_v", 0}}, {"zb_auto_1p", {"zb_auto", 1}}, {"zb_auto_2p", {"zb_auto", 2}}};
  const std::string theirs = expected["schedule"];
  const int ranks = expected["p"], microbatches = expected["m"], chunks = expected["v"];
  const auto found = kOurs.find(theirs);
  if (found == kOurs.end()) return generate(theirs, ranks, microbatches, chunks);
  return generate(found->second.first, ranks, microbatches, chunks,
                  {.memory_limit = static_cast<double>(found->second.second) * ranks});
}

TEST(Generators, OrdersAreThoseOfTheReferenceWhereTheyAreDefined) {
  int compared = 0;
  const auto cases = golden("unit_cost.json");
  for (const auto& [name, expected] : cases.items()) {
    const std::string kind = expected["schedule"];
    if (kind != "gpipe" && kind != "1f1b" && kind != "interleaved_1f1b" && kind != "zb_h1" && kind != "zb_h2") continue;
    SCOPED_TRACE(name);
    ++compared;
    const Schedule schedule = schedule_of(expected);
    ASSERT_EQ(schedule.actions.size(), expected["order"].size());
    for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank)
      EXPECT_EQ(reference_text(schedule.actions[rank]), expected["order"][rank]);
    const Simulation simulation = simulate(schedule);
    EXPECT_DOUBLE_EQ(simulation.makespan_global, expected["makespan_global"]);
    EXPECT_DOUBLE_EQ(simulation.makespan_max_rank, expected["makespan_maxstage"]);
    EXPECT_EQ(simulation.peak_activations, expected["peak_act_chunks_per_rank"].get<std::vector<int>>());
  }
  EXPECT_GE(compared, 20);
}

// Heuristic schedules are compared by their cost, not by their order.
TEST(Generators, HeuristicsCostAtMostWhatTheReferencesDoAtNoMoreMemory) {
  const std::set<std::string> heuristics = {"zb_auto_1p", "zb_auto_2p", "zbv", "v_half", "v_min", "v_1f1b"};
  int compared = 0;
  const auto cases = golden("unit_cost.json");
  for (const auto& [name, expected] : cases.items()) {
    if (!heuristics.contains(expected["schedule"])) continue;
    SCOPED_TRACE(name);
    ++compared;
    const Simulation simulation = simulate(schedule_of(expected));
    EXPECT_LE(simulation.makespan_max_rank, expected["makespan_maxstage"].get<double>());
    EXPECT_LE(simulation.makespan_global, expected["makespan_global"].get<double>());
    EXPECT_LE(largest(simulation.peak_activations),
              largest(expected["peak_act_chunks_per_rank"].get<std::vector<int>>()));
  }
  EXPECT_EQ(compared, 30);
}

TEST(Generators, DualPipeVIsTheAuthorsOwn) {
  const auto cases = golden("dualpipe_v.json");
  for (const auto& [name, expected] : cases.items()) {
    SCOPED_TRACE(name);
    const Schedule schedule = generate("dualpipe_v", expected["p"].get<int>(), expected["m"].get<int>());
    for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
      std::string text;
      const auto& row = schedule.actions[rank];
      for (std::size_t i = 0; i < row.size(); ++i) {
        const bool second = i > 0 && row[i - 1].overlaps_next;
        text += (second  ? ";"
                 : i > 0 ? " "
                         : "") +
                std::string(row[i].overlaps_next ? "(" : "") + to_string(row[i]) + (second ? ")" : "");
      }
      EXPECT_EQ(text, expected["order"][rank]);
    }
    const Simulation simulation = simulate(schedule, {.forward = 2, .input_gradient = 2, .weight_gradient = 2});
    EXPECT_DOUBLE_EQ(simulation.makespan_global, expected["makespan"]);
  }
}

// Table 5 of the zero-bubble paper, from the times of its Table 9.
TEST(Generators, BubbleRatesOfTheZeroBubblePaper) {
  const auto tables = golden("zero_bubble_tables.json");
  for (std::size_t i = 0; i < tables["times"].size(); ++i) {
    const auto &times = tables["times"][i], &rates = tables["rates"][i];
    SCOPED_TRACE(times.dump());
    const int ranks = times[1], microbatches = times[2];
    GeneratorOptions options{
        .forward = times[3], .input_gradient = times[4], .weight_gradient = times[5], .hop = times[6]};
    const Costs costs{options.forward, options.input_gradient, options.weight_gradient, options.hop};
    auto rate = [&](const char* name, double limit = 0) {
      options.memory_limit = limit;
      return simulate(generate(name, ranks, microbatches, 0, options), costs).bubble_rate;
    };
    EXPECT_NEAR(rate("1f1b"), rates[3].get<double>(), 5.1e-5);
    EXPECT_NEAR(rate("zb_h1"), rates[5].get<double>(), 5.1e-5);
    EXPECT_NEAR(rate("zb_h2"), rates[6].get<double>(), 5.1e-5);
    EXPECT_LE(rate("zb_auto", ranks), rates[7].get<double>() + 5.1e-5);
    EXPECT_LE(rate("zb_auto", 2 * ranks), rates[8].get<double>() + 5.1e-5);
  }
}

TEST(Generators, EveryScheduleIsValidForAnySizes) {
  for (const auto& name : generator_names())
    for (const int ranks : {1, 2, 3, 4, 5, 8})
      for (const int microbatches : {1, 2, 3, 5, 8, 11})
        for (const GeneratorOptions& options :
             {GeneratorOptions{},
              GeneratorOptions{.forward = 1.3, .input_gradient = 2.1, .weight_gradient = 0.7, .hop = 0.2}}) {
          const Schedule schedule = generate(name, ranks, microbatches, 0, options);
          EXPECT_NO_THROW(validate(lower(schedule))) << name << " " << ranks << " " << microbatches;
        }
}

TEST(Acceptance, D14InterleavedWarmup) {
  for (const int ranks : {2, 3, 4})
    for (const int chunks : {2, 3})
      for (const int microbatches : {2 * ranks, 2 * ranks + 1}) {
        const Schedule schedule = generate("interleaved_1f1b", ranks, microbatches, chunks);
        if (microbatches % ranks != 0) continue;  // any number is accepted; its warm-up may be longer
        for (int rank = 0; rank < ranks; ++rank) {
          const auto& row = schedule.actions[rank];
          const auto first =
              std::find_if(row.begin(), row.end(), [](const Action& a) { return a.kind == ActionKind::kBackward; });
          const int warmup = std::min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, chunks * microbatches);
          EXPECT_EQ(first - row.begin(), std::min(warmup + 1, chunks * microbatches));
        }
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
  EXPECT_THAT(error_of("", 2, 2, 1), HasSubstr("'' is not a known schedule"));
}

TEST(Generators, SizesOutOfBoundsAreRefused) {
  for (const auto& name : {"gpipe", "1f1b"}) {
    EXPECT_THAT(error_of(name, 0, 2, 1), HasSubstr("the number of ranks is 0"));
    EXPECT_THAT(error_of(name, 2, 0, 1), HasSubstr("the number of microbatches is 0"));
    EXPECT_THAT(error_of(name, 2, 2, -1), HasSubstr("the number of chunks is -1"));
    EXPECT_THAT(error_of(name, 2, 2, 2), HasSubstr("2 chunks per rank are not supported; expected at most 1; use"));
    EXPECT_THAT(error_of(name, 2'000'000'000, 2'000'000'000, 1), HasSubstr("expected at most 10000000 forwards"));
    EXPECT_THAT(error_of(name, 2, 2, 1, 3.0), HasSubstr("no memory limit"));
    EXPECT_EQ(error_of(name, 2, 2, 0), "accepted");
    EXPECT_EQ(error_of(name, 2, 2, 1), "accepted");
  }
}

}  // namespace
}  // namespace gantry::schedule
