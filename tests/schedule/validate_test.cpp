#include "gantry/schedule/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "random_schedule.h"

namespace gantry::schedule {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const Schedule& schedule) {
  try {
    validate(schedule);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "valid";
}

std::string error_of(const std::string& csv) { return error_of(from_csv(csv, "mine")); }

TEST(Validate, SoundSchedulesOfEveryFormPass) {
  EXPECT_EQ(error_of("0F0,0B0\n"), "valid");
  EXPECT_EQ(error_of("0F0,0I0,0W0\n"), "valid");
  EXPECT_EQ(error_of("0F0\n1F0\n"), "valid");                              // forwards alone
  EXPECT_EQ(error_of("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n"), "valid");      // V placement
  EXPECT_EQ(error_of("0F0,0F1,0B1,0I0,0W0\n1F0,1F1,1B1,1B0\n"), "valid");  // both kinds of backward, any order
  EXPECT_EQ(error_of("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"), "valid");
  EXPECT_EQ(error_of("0F0,1F0,1B0,0B0\n"), "valid");  // two stages on one rank
}

TEST(Validate, IncompleteSchedulesNameWhatIsMissing) {
  EXPECT_EQ(error_of("0F0,0B0,0F1,0B1\n1F0,1B0,1B1\n"),
            "schedule mine, rank 1: 1F1 is missing; expected a forward of every stage and microbatch");
  EXPECT_THAT(error_of("0F0,0B0\n1F0\n"), HasSubstr("rank 1: 1B0 is missing"));
  EXPECT_THAT(error_of("0F0,0I0,0B1,0F1\n"), HasSubstr("rank 0: 0W0 is missing; expected a weight gradient for 0I0"));
  EXPECT_THAT(error_of("0F0,0W0\n"), HasSubstr("rank 0: 0I0 is missing; expected an input gradient for 0W0"));
  EXPECT_THAT(error_of("0F0,0F1,0F3,0B0,0B1,0B3\n"), HasSubstr("0F2 is missing"));
}

TEST(Validate, DuplicatesAndTwoKindsOfBackwardAreRefused) {
  EXPECT_EQ(
      error_of("0F0,0F0,0B0\n"),
      "schedule mine, rank 0, position 1, 0F0: the same action is already at position 0; expected each action once");
  EXPECT_THAT(error_of("0F0,0B0,0B0\n"), HasSubstr("position 2, 0B0: the same action is already at position 1"));
  EXPECT_THAT(error_of("0F0,0B0,0I0,0W0\n"), HasSubstr("position 2, 0I0: 0B0 already computes the full backward"));
  EXPECT_THAT(error_of("0F0,0B0,0W0\n"), HasSubstr("position 2, 0W0: 0B0 already computes the full backward"));
}

TEST(Validate, OrderWithinARankIsChecked) {
  EXPECT_EQ(error_of("0B0,0F0\n"),
            "schedule mine, rank 0, position 0, 0B0: the action precedes 0F0 (position 1), which produces its forward; "
            "expected a position after that action");
  EXPECT_THAT(error_of("0F0,0W0,0I0\n"), HasSubstr("0W0: the action precedes 0I0 (position 2)"));
  EXPECT_THAT(error_of("1F0,0F0,1B0,0B0\n"), HasSubstr("1F0: the action precedes 0F0"));
  EXPECT_THAT(error_of("0F0,1F0,0B0,1B0\n"), HasSubstr("0B0: the action precedes 1B0"));
  EXPECT_THAT(error_of("0F0,1F0,0I0,1I0,0W0,1W0\n"), HasSubstr("0I0: the action precedes 1I0"));
}

TEST(Validate, PlacementMustBeCompleteAndUnique) {
  EXPECT_THAT(error_of("0F0,0B0\n0F1,0B1\n"), HasSubstr("stage 0 is held by ranks 0 and 1; expected one rank"));
  EXPECT_THAT(error_of("0F0,0B0\n2F0,2B0\n"), HasSubstr("no rank holds stage 1, but rank 1 holds stage 2"));
  EXPECT_THAT(error_of("999999F999999\n"), HasSubstr("no rank holds stage 0"));
  EXPECT_THAT(error_of("0F999999\n"), HasSubstr("0F0 is missing"));  // found at once in spite of its size
  Schedule schedule = generate("1f1b", 2, 2);
  schedule.stages_of_rank = {{1}, {0}};
  EXPECT_THAT(error_of(schedule), HasSubstr("rank 0, position 0, 0F0: stage 0 is held by rank 1"));
  schedule.stages_of_rank = {{0}};
  EXPECT_THAT(error_of(schedule), HasSubstr("places stages on 1 ranks and has rows for 2"));
  schedule.stages_of_rank = {{0, 0}, {1}};
  EXPECT_THAT(error_of(schedule), HasSubstr("stage 0 is held by ranks 0 and 0"));
  schedule.stages_of_rank = {{0}, {-1}};
  EXPECT_THAT(error_of(schedule), HasSubstr("rank 1 holds stage -1"));
  schedule.stages_of_rank = {{}, {}};
  EXPECT_THAT(error_of(schedule), HasSubstr("no rank holds a stage"));
}

TEST(Validate, NumbersOutsideTheScheduleAreRefused) {
  Schedule schedule = generate("gpipe", 2, 2);
  schedule.actions[1][0].microbatch = 2;
  EXPECT_THAT(error_of(schedule), HasSubstr("rank 1, position 0, 1F2: there is no microbatch 2; expected 0 to 1"));
  schedule.actions[1][0].microbatch = -1;
  EXPECT_THAT(error_of(schedule), HasSubstr("there is no microbatch -1"));
  schedule.actions[1][0] = {ActionKind::kForward, 7, 0};
  EXPECT_THAT(error_of(schedule), HasSubstr("there is no stage 7; expected 0 to 1"));
  schedule.microbatches = 0;
  EXPECT_THAT(error_of(schedule), HasSubstr("0 microbatches"));
  EXPECT_THAT(error_of(Schedule{}), HasSubstr("no rank"));
}

TEST(Validate, ACircleOfDataIsADeadlockThatNamesItsRanks) {
  // Rank 0 wants its gradient of microbatch 1 before it makes microbatch 0, rank 1 the other way round.
  EXPECT_EQ(error_of("0F1,0B1,0F0,0B0\n1F0,1B0,1F1,1B1\n"),
            "schedule mine: deadlock: rank 0 at position 1, 0B1, waits for 1B1 at position 3 on rank 1, rank 1 at "
            "position 0, "
            "1F0, waits for 0F0 at position 2 on rank 0; expected an order in which data arrives before its use");
}

TEST(Validate, OnlyTheRanksOfTheCircleAreNamed) {
  const std::string message = error_of("0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0\n2F0,2B0,2F1,2B1\n");
  EXPECT_THAT(message, AllOf(HasSubstr("deadlock"), HasSubstr("rank 1 at"), HasSubstr("rank 2 at")));
  EXPECT_EQ(message.find("rank 0 at"), std::string::npos) << message;
}

// PyTorch's loader accepts this schedule, and then trains on swapped microbatches.
TEST(Validate, SwappedSendsAreADeadlockUnderRendezvous) {
  EXPECT_THAT(error_of("0F0,0F1,0SEND_F1,0SEND_F0\n1RECV_F0,1F0,1RECV_F1,1F1\n"),
              AllOf(HasSubstr("rank 0 at position 2, 0SEND_F1, waits for 1RECV_F1 at position 2 on rank 1"),
                    HasSubstr("rank 1 at position 0, 1RECV_F0, waits for 0SEND_F0 at position 3 on rank 0")));
}

TEST(Validate, TwoRanksThatSendBeforeTheyReceiveAreADeadlock) {
  EXPECT_THAT(error_of("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                       "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"),
              HasSubstr("deadlock: rank 0 at position 3, 0SEND_F1"));
}

TEST(Validate, MessagesMustMatchAndBelong) {
  EXPECT_THAT(error_of("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
              HasSubstr("rank 0: 0SEND_F0 is missing; expected a send for 1RECV_F0 on rank 1"));
  EXPECT_THAT(error_of("0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
              HasSubstr("rank 0: 0RECV_B0 is missing; expected a receive for 1SEND_B0 on rank 1"));
  EXPECT_THAT(error_of("0F0,0SEND_F0,0SEND_F0\n1RECV_F0,1F0\n"),
              HasSubstr("0SEND_F0: the same action is already at position 1"));
  EXPECT_THAT(error_of("0F0,0SEND_F0\n1RECV_F0,1F0,1SEND_F0\n"), HasSubstr("stage 1 is at the end of the pipeline"));
  EXPECT_THAT(error_of("0RECV_F0,0F0,0SEND_F0\n1RECV_F0,1F0\n"), HasSubstr("0RECV_F0: stage 0 is at the end"));
  EXPECT_THAT(error_of("0F0,0SEND_F0,1F0\n"), HasSubstr("0SEND_F0: stage 1 is also on this rank"));
  EXPECT_THAT(error_of("0F0,0SEND_F0,0RECV_B0\n1RECV_F0,1F0\n"), HasSubstr("0RECV_B0: no backward needs this message"));
  EXPECT_THAT(error_of("0F0,0SEND_F0\n1RECV_F0,1F0,1SEND_B0\n"), HasSubstr("1SEND_B0: no backward produces its data"));
  EXPECT_THAT(error_of("0SEND_F0,0F0\n1RECV_F0,1F0\n"), HasSubstr("0SEND_F0: the action precedes 0F0"));
  EXPECT_THAT(error_of("0F0,0SEND_F0\n1F0,1RECV_F0\n"), HasSubstr("1F0: the action precedes 1RECV_F0"));
}

TEST(Validate, PartsOfAPairMayNotNeedEachOther) {
  EXPECT_THAT(error_of("(0F0;0B0)OVERLAP_F_B\n"),
              HasSubstr("0B0: the action overlaps 0F0, which produces its forward"));
  EXPECT_EQ(error_of("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n"), "valid");
  // The data for the second part arrive only after the other rank has received those of the first part.
  EXPECT_THAT(error_of("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1\n"),
              HasSubstr("deadlock: rank 0 at position 1, 0F1"));
  Schedule schedule = from_csv("0F0,0F1,0B0,0B1\n", "mine");
  schedule.actions[0][0].overlaps_next = true;
  EXPECT_THAT(error_of(schedule),
              HasSubstr("0F0: the action overlaps 0F1; expected a forward overlapped with one backward"));
  schedule.actions[0][0].overlaps_next = false;
  schedule.actions[0][3].overlaps_next = true;
  EXPECT_THAT(error_of(schedule), HasSubstr("0B1: the action overlaps the next one, but the row ends"));
}

TEST(Validate, RandomSchedulesThatRanOnceAreValid) {
  testing::RandomSchedule random(11);
  for (int i = 0; i < 500; ++i) {
    const Schedule schedule = random.make(5, 3, 6);
    EXPECT_EQ(error_of(schedule), "valid") << to_csv(schedule);
    EXPECT_EQ(error_of(forward_only(schedule)), "valid");
  }
}

// PyTorch 2.13's loader accepts each of these without a message.
TEST(Validate, WhatPyTorchsLoaderAcceptsIsRefusedWithTheCounterExample) {
  EXPECT_EQ(
      error_of("0F0,0F0,0B0\n1F0,1B0\n"),
      "schedule mine, rank 0, position 1, 0F0: the same action is already at position 0; expected each action once");
  // The ranks would swap microbatches.
  const std::string receiver = "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n";
  EXPECT_EQ(error_of("0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n" + receiver), "valid");
  EXPECT_THAT(error_of("0F0,0F1,0SEND_F1,0SEND_F0,0RECV_B0,0B0,0RECV_B1,0B1\n" + receiver),
              AllOf(HasSubstr("deadlock: "), HasSubstr("rank 0 at position 2, 0SEND_F1, waits for 1RECV_F1"),
                    HasSubstr("rank 1 at position 0, 1RECV_F0, waits for 0SEND_F0")));
  for (const std::string cell : {"0F0junk", "0F0 0B0", "0F0;", "0F0)", "0F00x", "0F0\v"})
    EXPECT_THROW(from_csv(cell + ",0B0\n1F0,1B0\n", "mine"), ConfigError) << cell;
}

}  // namespace
}  // namespace gantry::schedule
