// Diagnoses of hand-made records, one for each kind of finding, except for messages.
#include "gantry/diagnosis/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hand_made_records.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Diagnosis, NothingIsStuckWhereNobodyWaits) {
  HandMadeJob made(2);
  for (int rank = 0; rank < 2; ++rank) made.call(rank, Kind::kAllReduce);
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNothing);
  EXPECT_EQ(diagnosis.sentence, "nothing is stuck");
  EXPECT_TRUE(diagnosis.notes.empty());
}

TEST(Diagnosis, AShortWaitForARankThatWorksIsNoReasonToWorry) {
  HandMadeJob made(2);
  made.call(0, Kind::kAllReduce, State::kWaiting).posted_ns = HandMadeJob::kWritten - HandMadeJob::kSecond / 4;
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNothing);
  EXPECT_EQ(
      diagnosis.sentence,
      "nothing is stuck: the longest wait is that of rank 0 for all_reduce 0 of group 'all' (float32 [4]), 0.250 s "
      "so far");
  EXPECT_EQ(recorder::diagnose(made.job, 0.1).finding, Finding::kNotReached);
}

TEST(Diagnosis, ARankThatNeverReachesTheOperationIsNamedWithItsLastCall) {
  HandMadeJob made(3);
  for (int rank = 0; rank < 3; ++rank) made.call(rank, Kind::kBroadcast);
  made.call(0, Kind::kAllReduce, State::kWaiting);
  made.call(2, Kind::kAllReduce, State::kWaiting);
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNotReached);
  EXPECT_EQ(diagnosis.sentence,
            "rank 0 has waited 89.0 s for rank 1 to join all_reduce 1 of group 'all' (float32 [4]), which is outside "
            "communication; its last call, broadcast 0 of group 'all' (float32 [4]), was done 89.9 s earlier");
  ASSERT_EQ(diagnosis.waits.size(), 2u);
  EXPECT_THAT(diagnosis.waits[1].ranks, ElementsAre(1));
}

TEST(Diagnosis, TheSameHoldsWhenTheWaitHasTimedOut) {
  HandMadeJob made(2);
  made.call(0, Kind::kAllReduce, State::kWaiting);
  made.fail();
  // A call of rank 1 after the failure is refused or fails at once.
  made.call(1, Kind::kAllReduce, State::kRefused);
  made.rank(1).operations.back().posted_ns = 95 * HandMadeJob::kSecond;
  made.rank(1).operations.back().finished_ns = 95 * HandMadeJob::kSecond;
  auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNotReached);
  EXPECT_THAT(diagnosis.sentence, HasSubstr("rank 0 has waited 80.0 s for rank 1 to join all_reduce 0"));
  EXPECT_THAT(diagnosis.sentence, HasSubstr("outside communication and has called nothing"));
  made.rank(1).operations.back().state = State::kFailed;
  diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.waits.size(), 1u) << "rank 1 was in no wait when the job failed";
}

// If two reductions are aborted together, the device hung in the earlier one, whichever of them ends later.
TEST(Diagnosis, OfCallsThatAreGivenUpTogetherTheEarlierOneIsNamed) {
  HandMadeJob made(2);
  for (int rank = 0; rank < 2; ++rank)
    for (int call = 0; call < 2; ++call)
      made.call(rank, Kind::kAllReduce, State::kWaiting).posted_ns = 10 * HandMadeJob::kSecond + call;
  made.fail();
  for (int rank = 0; rank < 2; ++rank) made.rank(rank).operations.back().finished_ns += HandMadeJob::kSecond;
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNotFinished);
  EXPECT_THAT(diagnosis.sentence, HasSubstr("rank 0 has waited 80.0 s for all_reduce 0 of group 'all'"));
}

TEST(Diagnosis, ARankThatHasEndedIsDistinguishedFromOneThatWorks) {
  HandMadeJob made(2);
  made.call(0, Kind::kAllReduce, State::kWaiting).posted_ns = HandMadeJob::kWritten - 100;
  made.rank(1).state = RankState::kEnded;
  made.rank(1).ended_ns = 50 * HandMadeJob::kSecond;
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kRankEnded) << "however short the wait";
  EXPECT_THAT(diagnosis.sentence, HasSubstr("for rank 1 to join all_reduce 0 of group 'all' (float32 [4]), which has "
                                            "ended and has called nothing"));
}

TEST(Diagnosis, ARankThatEndedAfterTheFailureWasOutsideThen) {
  HandMadeJob made(2);
  made.call(0, Kind::kAllReduce, State::kWaiting);
  made.fail();
  made.rank(1).state = RankState::kEnded;
  made.rank(1).ended_ns = 95 * HandMadeJob::kSecond;
  EXPECT_EQ(diagnose(made).finding, Finding::kNotReached);
}

TEST(Diagnosis, ARankThatFailedIsReportedWithItsError) {
  HandMadeJob made(3);
  made.call(0, Kind::kAllReduce, State::kWaiting);
  made.fail();
  made.rank(1).state = RankState::kFailed;
  made.rank(1).error = "model: broken";
  made.rank(1).ended_ns = 80 * HandMadeJob::kSecond;
  // Rank 2 failed too, because the job had failed.
  made.rank(2).state = RankState::kFailed;
  made.rank(2).error = "rank 1: model: broken";
  made.rank(2).ended_ns = 91 * HandMadeJob::kSecond;
  auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kRankFailed);
  EXPECT_THAT(diagnosis.sentence,
              HasSubstr("for rank 1 to join all_reduce 0 of group 'all' (float32 [4]), which failed: "
                        "model: broken"));
  made.rank(0).operations.clear();
  made.rank(0).groups[0].collectives = 0;
  diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.sentence, "rank 1 failed, but no rank waited for it: model: broken");
}

TEST(Diagnosis, ARankThatWasStoppedIsReportedThoughItWentOnLater) {
  HandMadeJob made(2);
  made.call(0, Kind::kAllReduce, State::kWaiting);
  made.fail();
  made.rank(1).stopped_from_ns = 20 * HandMadeJob::kSecond;
  made.rank(1).stopped_until_ns = 92 * HandMadeJob::kSecond;
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kStopped);
  EXPECT_THAT(diagnosis.sentence, HasSubstr("which was suspended: its process did not run for 72.0 s"));
  made.rank(1).stopped_until_ns = 30 * HandMadeJob::kSecond;
  EXPECT_EQ(diagnose(made).finding, Finding::kNotReached) << "it ran again long before";
}

TEST(Diagnosis, ARankWithoutAFileWasKilledOrStopped) {
  HandMadeJob made(4);
  made.call(0, Kind::kAllReduce, State::kWaiting);
  made.call(1, Kind::kAllReduce, State::kWaiting);
  made.job.records.erase(2);
  made.call(3, Kind::kAllReduce, State::kWaiting);
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNoFile);
  EXPECT_THAT(diagnosis.sentence, HasSubstr("for rank 2 to join all_reduce 0 of group 'all' (float32 [4]), which left "
                                            "no file: it was killed or suspended"));
  EXPECT_THAT(diagnosis.notes, ElementsAre("1 of 4 ranks left no file: 2"));
}

TEST(Diagnosis, ARankThatNeverMadeTheGroup) {
  HandMadeJob made(3);
  const int pair = made.group(0, "pair", {0, 1});
  made.make_group(0, pair, State::kWaiting);
  auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNeverJoined);
  EXPECT_EQ(
      diagnosis.sentence,
      "rank 0 has waited 90.0 s for rank 1 to join group 'pair' of the ranks 0, 1, which is outside communication "
      "and has called nothing");
  // If making a group does not wait, the group's first collective shows the missing rank.
  made.rank(0).operations.clear();
  made.make_group(0, pair, State::kDone);
  made.call(0, Kind::kBarrier, State::kWaiting, pair);
  diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNeverJoined);
  EXPECT_THAT(diagnosis.sentence, HasSubstr("to join barrier 0 of group 'pair' (float32 [4]), which never joined the "
                                            "group and is outside communication"));
}

TEST(Diagnosis, GroupsOfTheSameRanksAreKeptApart) {
  HandMadeJob made(2);
  for (int rank = 0; rank < 2; ++rank) made.rank(rank).groups[made.group(rank, "again", {0, 1})].instance = 1;
  made.call(0, Kind::kAllReduce, State::kWaiting, 0);
  made.call(1, Kind::kAllReduce, State::kWaiting, 1);
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kCycle);
  EXPECT_EQ(
      diagnosis.sentence,
      "2 ranks wait for each other in a cycle: rank 0 for rank 1 to join all_reduce 0 of group 'all' (float32 [4]), "
      "rank 1 for rank 0 to join all_reduce 0 of group 'again' (float32 [4])");
}

TEST(Diagnosis, ShapesThatDifferAreNamedBoth) {
  HandMadeJob made(2);
  made.call(0, Kind::kAllReduce, State::kWaiting);
  made.call(1, Kind::kAllReduce, State::kWaiting).shape = {5};
  auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kTensorsDiffer);
  EXPECT_EQ(diagnosis.sentence,
            "rank 0 called all_reduce 0 of group 'all' as all_reduce of float32 [4] (sum) where rank 1 called it as "
            "all_reduce of float32 [5] (sum)");
  made.rank(1).operations[0].shape = {2, 2};
  EXPECT_NE(diagnose(made).finding, Finding::kTensorsDiffer) << "as many elements";
  made.rank(1).operations[0].dtype = "int64";
  EXPECT_EQ(diagnose(made).finding, Finding::kTensorsDiffer);
  made.rank(1).operations[0].dtype = "float32";
  made.rank(1).operations[0].reduction = "max";
  EXPECT_EQ(diagnose(made).finding, Finding::kTensorsDiffer);
}

TEST(Diagnosis, CallsInAnotherOrderAreNamedBoth) {
  HandMadeJob made(2);
  made.call(0, Kind::kAllReduce);
  made.call(1, Kind::kAllReduce);
  made.call(0, Kind::kAllReduce, State::kWaiting);
  made.call(1, Kind::kBroadcast, State::kWaiting);
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kCallsDiffer);
  EXPECT_EQ(diagnosis.sentence,
            "rank 0 called all_reduce of float32 [4] (sum) as number 1 of group 'all' where rank 1 called broadcast of "
            "float32 [4] from rank 0; all members must make the same calls in the same order");
}

TEST(Diagnosis, BroadcastsFromDifferentRoots) {
  HandMadeJob made(2);
  made.call(0, Kind::kBroadcast, State::kWaiting).peer = 1;
  made.call(1, Kind::kBroadcast, State::kWaiting).peer = 0;
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kCallsDiffer);
  EXPECT_THAT(diagnosis.sentence, HasSubstr("from rank 1 as number 0"));
}

TEST(Diagnosis, WhatTheRingHasForgottenWasDone) {
  HandMadeJob made(2);
  made.call(0, Kind::kAllReduce, State::kWaiting);
  made.rank(1).groups[0].collectives = 5000;
  made.rank(1).forgotten = 5000;
  EXPECT_EQ(diagnose(made).finding, Finding::kNothing) << "rank 1 joined it long ago";
}

TEST(Diagnosis, ACollectiveThatAMemberHasCalledAndDoesNotWaitFor) {
  HandMadeJob made(2);
  made.call(0, Kind::kAllReduce, State::kWaiting);
  made.call(1, Kind::kAllReduce, State::kPosted);
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNotFinished);
  EXPECT_THAT(diagnosis.sentence, HasSubstr("which has called it, but is not in a wait that would complete it"));
}

// As with a device that hangs: the hosts of all ranks have called the operation.
TEST(Diagnosis, ACollectiveThatAllAreInAndThatDoesNotEnd) {
  HandMadeJob made(2);
  for (int rank = 0; rank < 2; ++rank) made.call(rank, Kind::kAllReduce, State::kWaiting);
  for (int rank = 0; rank < 2; ++rank) made.call(rank, Kind::kBroadcast, State::kWaiting);  // queued after it
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNotFinished);
  EXPECT_EQ(diagnosis.sentence,
            "rank 0 has waited 90.0 s for all_reduce 0 of group 'all' (float32 [4]) with rank 1, which is in it too: "
            "all its members have called it, but it does not complete");
  made.rank(1).operations.front().state = State::kPosted;
  EXPECT_THAT(diagnose(made).sentence, HasSubstr("is not in a wait that would complete it"));
  made.rank(1).identity.backend = "nccl";
  EXPECT_THAT(diagnose(made).sentence, HasSubstr("which is in it too")) << "a device needs no wait of its host";
}

TEST(Diagnosis, ACollectiveThatAFailureCutsOffIsNotBlamed) {
  HandMadeJob made(2);
  for (int rank = 0; rank < 2; ++rank)
    made.call(rank, Kind::kAllReduce, State::kWaiting).posted_ns = 90 * HandMadeJob::kSecond - HandMadeJob::kSecond / 4;
  made.fail();
  EXPECT_EQ(diagnose(made).finding, Finding::kNothing) << diagnose(made).sentence;
}

// A rank calls the operation only after the others have timed out, and finds all members there.
TEST(Diagnosis, WhatWasCalledAfterTheFailureCameTooLate) {
  HandMadeJob made(3);
  const int pair = made.group(0, "pair", {0, 1});
  made.call(0, Kind::kAllReduce, State::kWaiting);
  made.call(2, Kind::kAllReduce, State::kWaiting);
  made.fail();
  made.call(1, Kind::kAllReduce).posted_ns = 91 * HandMadeJob::kSecond;
  made.rank(1).operations.back().finished_ns = 92 * HandMadeJob::kSecond;
  EXPECT_EQ(diagnose(made).finding, Finding::kNotReached);
  made.rank(0).operations.clear();
  made.make_group(0, pair, State::kWaiting);
  made.fail();
  made.rank(1).operations.clear();
  made.make_group(1, made.group(1, "pair", {0, 1}), State::kDone).posted_ns = 91 * HandMadeJob::kSecond;
  made.rank(1).operations.back().finished_ns = 92 * HandMadeJob::kSecond;
  EXPECT_EQ(diagnose(made).finding, Finding::kNeverJoined);
}

// Files are written one after the other. Events after the first file was written are not known for all ranks.
TEST(Diagnosis, LaterWaitsThanTheFirstFileAreLeftOut) {
  HandMadeJob made(2);
  made.rank(1).written_ns = 12 * HandMadeJob::kSecond;
  made.call(0, Kind::kAllReduce, State::kWaiting).posted_ns = 20 * HandMadeJob::kSecond;
  EXPECT_EQ(diagnose(made).finding, Finding::kNothing);
  EXPECT_TRUE(diagnose(made).waits.empty());
}

TEST(Diagnosis, HostsHaveClocksOfTheirOwn) {
  HandMadeJob made(2);
  made.rank(1).identity.host = "there";
  made.rank(1).written_ns = 2 * HandMadeJob::kSecond;  // this host started long after the other one
  made.call(0, Kind::kAllReduce, State::kWaiting);
  EXPECT_EQ(diagnose(made).finding, Finding::kNotReached);
}

}  // namespace
}  // namespace gantry::testing
