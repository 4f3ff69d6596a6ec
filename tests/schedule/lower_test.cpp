#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/schedule/schedule.h"
#include "gantry/schedule/validate.h"
#include "random_schedule.h"

namespace gantry::schedule {
namespace {

using ::testing::HasSubstr;

// Returns the directory of PyTorch's cases, which are not part of the project. If it is missing, prints a
// note and returns an empty string.
std::string pytorch_cases() {
  const char* given = std::getenv("GANTRY_GOLDENS");
  const std::string folder =
      given != nullptr ? std::string(given) : std::string(GANTRY_SOURCE_DIR) + "/../shared/goldens";
  if (std::filesystem::exists(folder + "/schedules/pytorch_lowering_cases.json")) return folder + "/schedules/";
  std::cout << "note: not compared with PyTorch's lowering, since " << folder
            << "/schedules is not there; GANTRY_GOLDENS names another place\n";
  return "";
}

bool needs(const Action& compute, const Action& receive) {
  if (compute.stage != receive.stage || compute.microbatch != receive.microbatch) return false;
  if (receive.kind == ActionKind::kRecvForward) return compute.kind == ActionKind::kForward;
  return compute.kind == ActionKind::kBackward || compute.kind == ActionKind::kInputGradient;
}

// Moves each receive to right before the action that needs it. Two lowerings that differ only in how early
// they receive are then equal.
std::vector<Action> with_late_receives(const std::vector<Action>& row) {
  std::vector<Action> result;
  for (const auto& action : row) {
    if (action.kind == ActionKind::kRecvForward || action.kind == ActionKind::kRecvBackward) continue;
    for (const auto& receive : row)
      if ((receive.kind == ActionKind::kRecvForward || receive.kind == ActionKind::kRecvBackward) &&
          needs(action, receive))
        result.push_back(receive);
    result.push_back(action);
  }
  return result;
}

Schedule from_rows(const nlohmann::json& rows) {
  std::string csv;
  for (const auto& row : rows) {
    for (const auto& cell : row) csv += cell.get<std::string>() + ",";
    csv += "\n";
  }
  Schedule schedule = from_csv(csv, "case");
  // In older cases B is the input gradient. They contain W but not I.
  if (csv.find('W') != std::string::npos && csv.find('I') == std::string::npos)
    for (auto& row : schedule.actions)
      for (auto& action : row)
        if (action.kind == ActionKind::kBackward) action.kind = ActionKind::kInputGradient;
  return schedule;
}

// Merges an I and a W of the same microbatch right after it into one B, as PyTorch does before lowering.
Schedule with_merged_backwards(Schedule schedule) {
  for (auto& row : schedule.actions)
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      const Action full{ActionKind::kBackward, row[i].stage, row[i].microbatch};
      const Action weight{ActionKind::kWeightGradient, row[i].stage, row[i].microbatch};
      if (row[i].kind != ActionKind::kInputGradient || row[i + 1] != weight) continue;
      row[i] = full;
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  return schedule;
}

void expect_same_but_for_early_receives(const Schedule& ours, const Schedule& theirs) {
  ASSERT_EQ(ours.ranks(), theirs.ranks());
  for (int rank = 0; rank < ours.ranks(); ++rank)
    EXPECT_EQ(with_late_receives(ours.actions[rank]), with_late_receives(theirs.actions[rank])) << "rank " << rank;
}

TEST(Lower, SendsFollowAndReceivesPrecedeTheirComputations) {
  EXPECT_EQ(to_csv(lower(generate("gpipe", 2, 2))),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
  EXPECT_EQ(to_csv(lower(generate("1f1b", 1, 2))), "0F0,0B0,0F1,0B1\n");
}

// Rank 0 sends microbatch 1 before it receives, so rank 1 must receive it before it sends, and no earlier than that.
TEST(Lower, AReceiveMovesUpOnlyAsFarAsADeadlockDemands) {
  EXPECT_EQ(to_csv(lower(generate("1f1b", 2, 2))),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1B0,1RECV_F1,1SEND_B0,1F1,1B1,1SEND_B1\n");
}

TEST(Lower, StagesOfOneRankExchangeNoMessages) {
  const Schedule schedule = from_csv("0F0,3F0,3B0,0B0\n1F0,2F0,2I0,1B0,2W0\n", "v");
  EXPECT_EQ(to_csv(lower(schedule)),
            "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0\n"
            "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2I0,1B0,1SEND_B0,2W0\n");
}

TEST(Lower, MessagesOfAPairStandAroundIt) {
  const Schedule schedule = from_csv("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,(1F2;1B0)OVERLAP_F_B,1B1,1B2\n", "pair");
  const Schedule lowered = lower(schedule);
  EXPECT_THAT(to_csv(lowered), HasSubstr("1RECV_F2,(1F2;1B0)OVERLAP_F_B,1SEND_B0"));
  validate(lowered);
}

TEST(Lower, WhatHasMessagesStaysAsItIs) {
  const Schedule lowered = lower(generate("1f1b", 3, 4));
  EXPECT_EQ(lower(lowered), lowered);
}

TEST(Lower, BrokenSchedulesAreRefused) {
  EXPECT_THROW(lower(from_csv("0F0,0B0\n1B0,1F0\n", "broken")), ConfigError);
  EXPECT_THROW(lower(from_csv("0F999999\n", "broken")), ConfigError);
  EXPECT_THROW(lower(Schedule{}), ConfigError);
}

TEST(Lower, RandomSchedulesRunUnderRendezvousAndKeepTheirOrder) {
  testing::RandomSchedule random(5);
  for (int i = 0; i < 2'000; ++i) {
    const Schedule schedule = random.make(5, 3, 6);
    const Schedule lowered = lower(schedule);
    ASSERT_NO_THROW(validate(lowered)) << to_csv(schedule) << to_csv(lowered);
    ASSERT_TRUE(testing::Judge(lowered).is_valid()) << to_csv(lowered);
    ASSERT_EQ(compute_only(lowered), schedule);
  }
}

TEST(Lower, AgreesWithPyTorchButForHowEarlyItReceives) {
  const std::string folder = pytorch_cases();
  if (folder.empty()) return;
  std::ifstream file(folder + "pytorch_lowering_cases.json");
  const auto cases = nlohmann::json::parse(file);
  for (const auto& name : {"send_recv/simple_2_rank_2_stage", "send_recv/v_2_rank_4_stage"}) {
    SCOPED_TRACE(name);
    const Schedule input = from_rows(cases.at(name).at("input"));
    expect_same_but_for_early_receives(lower(input), from_rows(cases.at(name).at("output")));
    expect_same_but_for_early_receives(lower(input), from_rows(cases.at(name).at("defer_recv")));
    EXPECT_NO_THROW(validate(from_rows(cases.at(name).at("output"))));
  }
}

TEST(Lower, PyTorchsZeroBubbleFileIsReadAndLoweredTheSame) {
  const std::string folder = pytorch_cases();
  if (folder.empty()) return;
  const Schedule compute = load_csv(folder + "pytorch_zb1p_2rank_2stagep_compute.csv");
  const Schedule comms = load_csv(folder + "pytorch_zb1p_2rank_2stagep_comms.csv");
  validate(compute);
  validate(comms);
  EXPECT_EQ(comms.stages_of_rank, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  // PyTorch merged the backwards of the first rank only.
  Schedule merged = with_merged_backwards(compute);
  merged.actions[1] = compute.actions[1];
  expect_same_but_for_early_receives(lower(merged), comms);
}

// Two chunks per rank, all forwards first: 64 ranks x 256 microbatches x 2 chunks.
Schedule large_schedule() {
  constexpr int kRanks = 64;
  constexpr int kMicrobatches = 256;
  Schedule schedule;
  schedule.name = "large";
  schedule.microbatches = kMicrobatches;
  schedule.actions.resize(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    schedule.stages_of_rank.push_back({rank, rank + kRanks});
    auto& row = schedule.actions[rank];
    for (const int stage : {rank, rank + kRanks})
      for (int m = 0; m < kMicrobatches; ++m) row.push_back({ActionKind::kForward, stage, m});
    for (const int stage : {rank + kRanks, rank})
      for (int m = 0; m < kMicrobatches; ++m) row.push_back({ActionKind::kBackward, stage, m});
  }
  return schedule;
}

// bench/schedule_bench.cpp measures the time of this lowering.
TEST(Lower, LargeSchedulesHaveAMessageForEveryHop) {
  const Schedule lowered = lower(large_schedule());
  validate(lowered);
  std::size_t computes = 0, sends = 0, receives = 0;
  for (const auto& row : lowered.actions)
    for (const auto& action : row) {
      computes += action.is_compute();
      sends += action.kind == ActionKind::kSendForward || action.kind == ActionKind::kSendBackward;
      receives += action.kind == ActionKind::kRecvForward || action.kind == ActionKind::kRecvBackward;
    }
  constexpr std::size_t kStages = 128, kMicrobatches = 256;
  EXPECT_EQ(computes, 2 * kStages * kMicrobatches);
  EXPECT_EQ(sends, 2 * (kStages - 1) * kMicrobatches);
  EXPECT_EQ(receives, sends);
}

}  // namespace
}  // namespace gantry::schedule
