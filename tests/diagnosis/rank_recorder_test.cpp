// The ring of one rank: the entries that it keeps and forgets, and readers that never see half an entry.
#include "gantry/diagnosis/rank_recorder.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>

namespace gantry::testing {
namespace {

using namespace gantry::recorder;

RankRecorder two_ranks(int entries) { return RankRecorder({.rank = 1, .ranks = 2, .name = "rank 1"}, entries); }

TEST(Ring, KeepsWhatWasCalledAndHowItEnded) {
  RankRecorder ring = two_ranks(8);
  std::uint64_t making = 0;
  const int group = ring.begin_group("tp", {0, 1}, making);
  EXPECT_EQ(ring.snapshot().operations.at(0).state, State::kWaiting);
  ring.made(group, making);
  const std::int64_t shape[] = {2, 3};
  const auto sum =
      ring.post({.group = group, .kind = Kind::kAllReduce, .reduction = "sum", .dtype = "float32", .shape = shape});
  const auto receive =
      ring.post({.group = group, .kind = Kind::kReceive, .peer = 0, .tag = {Tag::Kind::kForward, 1, 3, 0}});
  ring.waits(receive);
  ring.finish(sum, State::kDone);

  const RankRecord record = ring.snapshot();
  ASSERT_EQ(record.groups.size(), 1u);
  EXPECT_TRUE(record.groups[0].made);
  EXPECT_EQ(record.groups[0].collectives, 1);
  ASSERT_EQ(record.operations.size(), 3u);
  EXPECT_EQ(describe(record.operations[1], record.groups[0]), "all_reduce 0 of group 'tp'");
  EXPECT_EQ(describe_tensor(record.operations[1]), "float32 [2, 3]");
  EXPECT_EQ(record.operations[1].state, State::kDone);
  EXPECT_GE(record.operations[1].finished_ns, record.operations[1].posted_ns);
  EXPECT_EQ(describe(record.operations[2], record.groups[0]), "forward of stage 1, microbatch 3, entry 0");
  EXPECT_EQ(record.operations[2].state, State::kWaiting);
  EXPECT_EQ(record.operations[2].finished_ns, 0);
  EXPECT_EQ(record.state, RankState::kRunning);
  ring.ended("broken");
  EXPECT_EQ(ring.snapshot().state, RankState::kFailed);
  EXPECT_EQ(ring.snapshot().error, "broken");
}

TEST(Ring, ForgetsTheOldestAndGoesOnCounting) {
  RankRecorder ring = two_ranks(4);
  std::uint64_t making = 0;
  const int group = ring.begin_group("tp", {0, 1}, making);
  ring.made(group, making);
  std::uint64_t first = 0;
  for (int i = 0; i < 10; ++i) {
    const auto number = ring.post({.group = group, .kind = Kind::kBarrier});
    if (i == 0) first = number;
  }
  ring.finish(first, State::kFailed);  // forgotten long ago: no other entry changes
  const RankRecord record = ring.snapshot();
  EXPECT_EQ(record.forgotten, 7u);
  ASSERT_EQ(record.operations.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(record.operations[i].number, 7 + i);
    EXPECT_EQ(record.operations[i].sequence, static_cast<std::int64_t>(6 + i));
    EXPECT_EQ(record.operations[i].state, State::kPosted);
  }
  EXPECT_EQ(record.groups[0].collectives, 10);
}

TEST(Ring, CountsMessagesByTagPeerAndDirection) {
  RankRecorder ring = two_ranks(64);
  std::uint64_t making = 0;
  const int group = ring.begin_group("pp", {0, 1}, making);
  const auto sequence = [&](Kind kind, int peer, int microbatch) {
    const auto number =
        ring.post({.group = group, .kind = kind, .peer = peer, .tag = {Tag::Kind::kForward, 0, microbatch, 0}});
    return ring.snapshot().operations[number].sequence;
  };
  EXPECT_EQ(sequence(Kind::kSend, 0, 0), 0);
  EXPECT_EQ(sequence(Kind::kSend, 0, 1), 0);
  EXPECT_EQ(sequence(Kind::kSend, 0, 0), 1);
  EXPECT_EQ(sequence(Kind::kReceive, 0, 0), 0);
  EXPECT_EQ(sequence(Kind::kSend, 1, 0), 0);
}

TEST(Ring, StopsCountingTagsWithoutEnd) {
  RankRecorder ring = two_ranks(2);
  std::uint64_t making = 0;
  const int group = ring.begin_group("pp", {0, 1}, making);
  for (int i = 0; i < 70000; ++i)
    ring.post({.group = group, .kind = Kind::kSend, .peer = 0, .tag = {Tag::Kind::kUser, 0, i, 0}});
  EXPECT_EQ(ring.snapshot().operations.back().sequence, Operation::kNotCounted);
}

TEST(Ring, GroupsOfTheSameRanksAreNumbered) {
  RankRecorder ring = two_ranks(4);
  std::uint64_t making = 0;
  for (const auto& ranks : {std::vector{0, 1}, {1}, {0, 1}}) ring.begin_group("g", ranks, making);
  const RankRecord record = ring.snapshot();
  EXPECT_EQ(record.groups[0].instance, 0);
  EXPECT_EQ(record.groups[1].instance, 0);
  EXPECT_EQ(record.groups[2].instance, 1);
}

TEST(Ring, TruncatesShapesOfVeryManyDims) {
  RankRecorder ring = two_ranks(4);
  std::uint64_t making = 0;
  const int group = ring.begin_group("g", {0, 1}, making);
  const std::vector<std::int64_t> shape(40, 1);
  ring.post({.group = group, .kind = Kind::kAllReduce, .dtype = "float32", .shape = shape});
  EXPECT_EQ(ring.snapshot().operations.back().shape.size(), 12u);
}

// Several threads of the rank write as fast as they can while another one reads. All fields of an entry
// contain the same number.
TEST(Ring, IsNeverReadHalfWritten) {
  constexpr int kWriters = 2, kEach = 30000;
  RankRecorder ring = two_ranks(64);
  std::uint64_t making = 0;
  const int group = ring.begin_group("g", {0, 1}, making);
  ring.made(group, making);
  std::atomic<int> writing{kWriters};
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kWriters; ++writer)
    threads.emplace_back([&, writer] {
      for (int i = 0; i < kEach; ++i) {
        const int value = writer * kEach + i;
        const std::vector<std::int64_t> shape(static_cast<std::size_t>(1 + value % 12), value);
        const auto number = ring.post({.group = group,
                                       .kind = Kind::kSend,
                                       .peer = 0,
                                       .tag = {Tag::Kind::kUser, value, 0, value},
                                       .dtype = "float32",
                                       .shape = shape});
        ring.waits(number);
        ring.finish(number, value % 2 == 0 ? State::kDone : State::kFailed);
      }
      --writing;
    });
  int read = 0;
  std::uint64_t last = 0;
  while (writing > 0 || read == 0) {
    const RankRecord record = ring.snapshot();
    ++read;
    ASSERT_GE(record.forgotten, last);
    last = record.forgotten;
    for (std::size_t i = 0; i < record.operations.size(); ++i) {
      const Operation& operation = record.operations[i];
      ASSERT_EQ(operation.number, record.forgotten + i);
      if (operation.kind == Kind::kMakeGroup) continue;
      const std::int64_t value = operation.tag.stage;
      ASSERT_EQ(operation.tag.entry, value);
      ASSERT_EQ(operation.shape, std::vector<std::int64_t>(static_cast<std::size_t>(1 + value % 12), value));
      const bool ended = operation.state == State::kDone || operation.state == State::kFailed;
      ASSERT_EQ(ended, operation.finished_ns > 0);
      if (ended) ASSERT_EQ(operation.state, value % 2 == 0 ? State::kDone : State::kFailed);
      ASSERT_LE(std::max(operation.posted_ns, operation.finished_ns), record.written_ns);
    }
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ring.snapshot().operations.back().number, static_cast<std::uint64_t>(kWriters * kEach));
}

}  // namespace
}  // namespace gantry::testing
