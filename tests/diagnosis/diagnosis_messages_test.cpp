// Diagnoses of messages in hand-made records, and of ranks that wait for each other in a chain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hand_made_records.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DiagnosedMessages, AMessageOfAnotherShape) {
  HandMadeJob made(2);
  made.message(0, Kind::kSend, 1, forward(0, 3)).shape = {2, 3};
  made.message(1, Kind::kReceive, 0, forward(0, 3), State::kWaiting).shape = {3, 2};
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kTensorsDiffer);
  EXPECT_EQ(
      diagnosis.sentence,
      "rank 1 expects forward of stage 0, microbatch 3, entry 0 from rank 0 as float32 [3, 2], which sent float32 "
      "[2, 3]");
}

TEST(DiagnosedMessages, AReceiveWithoutASend) {
  HandMadeJob made(2);
  made.message(1, Kind::kReceive, 0, forward(0, 3), State::kWaiting);
  auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNotReached);
  EXPECT_THAT(
      diagnosis.sentence,
      HasSubstr("rank 1 has waited 90.0 s for rank 0 to send forward of stage 0, microbatch 3, entry 0 (float32 "
                "[4]) in group 'all', which is outside communication"));
  made.message(0, Kind::kSend, 1, forward(0, 2));
  diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNoSend);
  EXPECT_THAT(diagnosis.sentence,
              HasSubstr("; it sent forward of stage 0, microbatch 2, entry 0 (float32 [4]) instead, "
                        "which no rank has requested"));
}

TEST(DiagnosedMessages, MessagesOfOneTagAreMatchedByTheirNumber) {
  HandMadeJob made(2);
  made.message(0, Kind::kSend, 1, forward(0, 0));
  made.message(1, Kind::kReceive, 0, forward(0, 0));
  made.message(1, Kind::kReceive, 0, forward(0, 0), State::kWaiting);
  EXPECT_EQ(diagnose(made).finding, Finding::kNotReached) << "the second one was never sent";
}

TEST(DiagnosedMessages, ASendThatNobodyReceivesIsANote) {
  HandMadeJob made(2);
  made.message(0, Kind::kSend, 1, forward(1, 0));
  auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNothing);
  EXPECT_THAT(
      diagnosis.notes,
      ElementsAre(
          "rank 0 sent forward of stage 1, microbatch 0, entry 0 (float32 [4]), which rank 1 has not requested"));
  EXPECT_TRUE(recorder::diagnose(made.job, 95).notes.empty()) << "a job that goes on may yet ask for it";
  // The receiver's ring has forgotten its older entries, so it may have received the message.
  made.rank(1).forgotten = 10;
  made.call(1, Kind::kAllReduce).posted_ns = 40 * HandMadeJob::kSecond;
  EXPECT_TRUE(diagnose(made).notes.empty());
}

TEST(DiagnosedMessages, ASendThatWaitsForItsReceiver) {
  HandMadeJob made(2);
  made.message(0, Kind::kSend, 1, forward(0, 0), State::kWaiting);
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNotReached);
  EXPECT_THAT(diagnosis.sentence, HasSubstr("for rank 1 to take forward of stage 0, microbatch 0, entry 0"));
}

TEST(DiagnosedMessages, RanksThatReceiveFromEachOther) {
  HandMadeJob made(3);
  for (int rank = 0; rank < 3; ++rank)
    made.message(rank, Kind::kReceive, (rank + 1) % 3, forward(rank, 0), State::kWaiting);
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kCycle);
  EXPECT_THAT(diagnosis.sentence, HasSubstr("3 ranks wait for each other in a cycle: rank 0 for rank 1 to send"));
}

TEST(DiagnosedMessages, ARankThatWaitsForItself) {
  HandMadeJob made(2);
  made.message(1, Kind::kReceive, 1, forward(0, 0), State::kWaiting);
  EXPECT_THAT(diagnose(made).sentence, HasSubstr("rank 1 waits for itself: for rank 1 to send forward of stage 0"));
}

TEST(DiagnosedMessages, AChainIsFollowedToItsEnd) {
  HandMadeJob made(4);
  made.message(0, Kind::kReceive, 1, forward(0, 0), State::kWaiting);
  made.message(1, Kind::kReceive, 2, forward(1, 0), State::kWaiting);
  made.message(2, Kind::kReceive, 3, forward(2, 0), State::kWaiting);
  made.job.records.erase(3);
  const auto diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNoFile);
  EXPECT_EQ(
      diagnosis.sentence,
      "rank 0 has waited 90.0 s for rank 1 to send forward of stage 0, microbatch 0, entry 0 (float32 [4]) in group "
      "'all', which waits for rank 2 to send forward of stage 1, microbatch 0, entry 0 (float32 [4]) in group "
      "'all', which waits for rank 3 to send forward of stage 2, microbatch 0, entry 0 (float32 [4]) in group "
      "'all', which left no file: it was killed or suspended, or wrote to another directory");
}

TEST(DiagnosedMessages, ManyRanksInARowAreShortened) {
  constexpr int kRanks = 100;
  HandMadeJob made(kRanks);
  for (int rank = 0; rank < kRanks; ++rank)
    made.message(rank, Kind::kReceive, (rank + 1) % kRanks, forward(rank, 0), State::kWaiting);
  auto diagnosis = diagnose(made);
  EXPECT_THAT(diagnosis.sentence, HasSubstr("100 ranks wait for each other in a cycle"));
  EXPECT_THAT(diagnosis.sentence, HasSubstr("96 more in between"));
  EXPECT_LT(diagnosis.sentence.size(), 1000u);
  made.rank(kRanks - 1).operations.clear();
  diagnosis = diagnose(made);
  EXPECT_EQ(diagnosis.finding, Finding::kNotReached);
  EXPECT_LT(diagnosis.sentence.size(), 1500u);
}

}  // namespace
}  // namespace gantry::testing
