// The flight recorder of a process: SIGUSR2 while ranks write, the program's own signal handlers, and
// successive jobs.
#include "gantry/diagnosis/flight_recorder.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "gantry/diagnosis/record_reader.h"
#include "program.h"

namespace gantry::testing {
namespace {

using namespace gantry::recorder;

JobSettings settings(const ScratchFolder& scratch, int ranks) {
  return {.folder = scratch / "recorder", .ranks = ranks, .entries = 64};
}

bool wait_until(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// Returns the time of the last file. Files replace each other atomically, so one can be read at any time.
std::int64_t written(const ScratchFolder& scratch, int rank) {
  const std::string path = scratch / "recorder/" + file_name(rank);
  return std::filesystem::exists(path) ? parse_record(read_file(path), path).written_ns : 0;
}

TEST(Service, SignalsWriteWholeFilesWhileRanksWrite) {
  constexpr int kRanks = 2;
  const ScratchFolder scratch;
  const RecordedJob job(settings(scratch, kRanks));
  std::atomic<bool> stop{false};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&stop, ring = record_rank({.rank = rank, .name = "rank"})] {
      std::uint64_t making = 0;
      const int group = ring->begin_group("all", {0, 1}, making);
      ring->made(group, making);
      while (!stop) ring->finish(ring->post({.group = group, .kind = Kind::kBarrier}), State::kDone);
    });
  for (int i = 0; i < 10; ++i) {
    const std::int64_t before = written(scratch, 1);
    ::kill(::getpid(), SIGUSR2);
    ASSERT_TRUE(wait_until([&] { return written(scratch, 1) > before; }))
        << i << " " << before << " " << written(scratch, 1);
  }
  stop = true;
  for (auto& rank : ranks) rank.join();
  const JobRecords records = read_folder(scratch.path());
  EXPECT_EQ(records.records.size(), 2u);
  EXPECT_EQ(records.records.at(0).reason, "SIGUSR2");
  EXPECT_EQ(records.records.at(0).identity.job, records.records.at(1).identity.job);
}

TEST(Service, AFailureIsWrittenAndKeepsItsReason) {
  const ScratchFolder scratch;
  const RecordedJob job(settings(scratch, 2));
  const auto ring = record_rank({.rank = 0, .name = "rank"});
  record_failure(3, "a configuration that is wrong");
  EXPECT_EQ(written(scratch, 0), 0);
  record_failure(7, "the first");
  record_failure(7, "the second");
  write_flight_records("somebody");
  const RankRecord record = read_folder(scratch.path()).records.at(0);
  EXPECT_TRUE(record.failure);
  EXPECT_EQ(record.reason, "the first");
}

TEST(Service, AJobOfOneRankWritesNothingWhenItFails) {
  const ScratchFolder scratch;
  const RecordedJob job(settings(scratch, 1));
  const auto ring = record_rank({.rank = 0, .name = "rank"});
  record_failure(1, "broken");
  EXPECT_EQ(written(scratch, 0), 0);
  EXPECT_TRUE(write_flight_records("somebody"));
}

TEST(Service, JobsFollowEachOtherAndAreNotMixed) {
  const ScratchFolder first, second, third;
  {
    const RecordedJob job(settings(first, 2));
    const auto ring = record_rank({.rank = 0});
    const RecordedJob extra(settings(second, 2));  // is not recorded, and does not affect the first job
    EXPECT_TRUE(write_flight_records("now"));
  }
  EXPECT_TRUE(write_flight_records("it stays until the next one"));
  {
    JobSettings none = settings(third, 2);
    none.entries = 0;
    const RecordedJob job(none);
    EXPECT_EQ(record_rank({.rank = 0}), nullptr);
    EXPECT_FALSE(write_flight_records("nothing is recorded"));
  }
  EXPECT_NE(written(first, 0), 0);
  EXPECT_EQ(written(second, 0) + written(third, 0), 0);
}

// Time for the service's thread to write, if it does so by mistake.
constexpr auto kAWhile = std::chrono::milliseconds(400);

// In a job of several processes, a process asks the others for their files, and answers them.
TEST(Service, ProcessesAskEachOtherForTheirRecords) {
  const ScratchFolder scratch;
  JobSettings mine = settings(scratch, 2);
  mine.several_processes = true;
  const RecordedJob job(mine);
  const auto ring = record_rank({.rank = 1});
  std::atomic<int> asked{0};
  set_record_requests([&] { ++asked; });
  answer_record_request();
  EXPECT_TRUE(wait_until([&] { return written(scratch, 1) > 0; }));
  EXPECT_EQ(read_folder(scratch.path()).records.at(1).reason, "a request of another rank");
  EXPECT_EQ(asked, 0);  // an answer does not ask again
  EXPECT_TRUE(write_flight_records("mine"));
  EXPECT_EQ(asked, 1);
  ::kill(::getpid(), SIGUSR2);
  EXPECT_TRUE(wait_until([&] { return asked == 2; }));
  set_record_requests({});
  EXPECT_TRUE(write_flight_records("alone"));
  EXPECT_EQ(asked, 2);
}

// All processes fail at the same time, and write to one folder.
TEST(Service, ProcessesThatFailTogetherWriteWithoutDisturbingEachOther) {
  constexpr int kProcesses = 4, kTimes = 50;
  const ScratchFolder scratch;
  int begin[2] = {-1, -1};
  ASSERT_EQ(::pipe(begin), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < kProcesses; ++rank) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    ::alarm(120);
    JobSettings mine = settings(scratch, kProcesses);
    mine.several_processes = true;
    const RecordedJob job(mine);
    const auto ring = record_rank({.rank = rank});
    char byte = 0;
    ::close(begin[1]);
    (void)!::read(begin[0], &byte, 1);  // until the parent closes it
    int failed = 0;
    for (int i = 0; i < kTimes; ++i) failed += write_flight_records("all at once") ? 0 : 1;
    ::_exit(failed > 0 ? 1 : 0);
  }
  ::close(begin[0]);
  ::close(begin[1]);
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(read_folder(scratch.path()).records.size(), static_cast<std::size_t>(kProcesses));
  for (const auto& entry : std::filesystem::directory_iterator(scratch / "recorder"))
    EXPECT_NE(entry.path().extension(), ".new") << entry.path();
}

std::atomic<int> own_calls{0};

TEST(Service, AHandlerOfTheProgramsOwnStays) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process, which has caught no signal
  EXPECT_EXIT(
      {
        ::signal(SIGUSR2, [](int) { ++own_calls; });
        const ScratchFolder scratch;
        const RecordedJob job(settings(scratch, 2));
        const auto ring = record_rank({.rank = 0});
        ::raise(SIGUSR2);
        std::this_thread::sleep_for(kAWhile);
        const bool wrote = written(scratch, 0) != 0;
        std::filesystem::remove_all(scratch.path());
        ::_exit(own_calls == 1 && !wrote ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gantry::testing
