// The parts of `gantry launch`: hosts, lines, the verdict on a job, and the decision to restart.
#include <csignal>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/launch/supervisor/hosts.h"
#include "gantry/launch/supervisor/line_splitter.h"
#include "gantry/launch/supervisor/rank_end.h"
#include "gantry/launch/supervisor/restart_policy.h"
#include "program.h"

namespace gantry::launcher {
namespace {

using Kind = RankEnd::Kind;
using testing::ScratchFolder;

TEST(Hosts, AreReadWithTheirSlots) {
  const auto hosts = parse_hosts("a:2,b.example.org,10.0.0.3:16");
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_EQ(hosts[1].slots, 1);
  EXPECT_EQ(hosts[2].slots, 16);
  EXPECT_EQ(total_slots(hosts), 19);
  const ScratchFolder scratch;
  const auto file = read_hostfile(scratch.write("hosts", "# two\na slots=2\n\n b  slots=3 max_slots=4 # last\n"));
  ASSERT_EQ(file.size(), 2u);
  EXPECT_EQ(file[1].name, "b");
  EXPECT_EQ(total_slots(file), 5);
}

TEST(Hosts, WhatIsNoneIsRefused) {
  for (const char* text : {"", "a:", "a:0", "a:-1", "a:x", "a:2,,b", "a,a", "-n:2", "a b", "a:99999999999"})
    EXPECT_THROW(parse_hosts(text), UsageError) << text;
  const ScratchFolder scratch;
  for (const char* text : {"", "# none\n", "a slots\n", "a slots=0\n", "a b\n", "a\na\n", "--host x\n"})
    EXPECT_THROW(read_hostfile(scratch.write("hosts", text)), InputError) << text;
  EXPECT_THROW(read_hostfile(scratch / "none"), InputError);
}

TEST(Lines, AreWholeHoweverTheirBytesCome) {
  const std::string text = "one\n\ntwo\r\nthree";
  for (std::size_t place = 0; place <= text.size(); ++place) {
    LineSplitter splitter;
    auto lines = splitter.add(text.substr(0, place));
    for (auto& line : splitter.add(text.substr(place))) lines.push_back(line);
    EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "two\r"})) << place;
    EXPECT_EQ(splitter.finish(), std::vector<std::string>{"three"});
    EXPECT_TRUE(splitter.finish().empty());
  }
}

TEST(Lines, AnEndlessOneIsTruncated) {
  LineSplitter splitter;
  std::size_t lines = 0;
  for (std::size_t i = 0; i < 3 * LineSplitter::kLongest; i += 1000)
    lines += splitter.add(std::string(1000, 'x')).size();
  EXPECT_EQ(lines, 2u);
}

RankEnd ended(int rank, Kind kind, int number, bool notified = false) {
  return {.rank = rank, .kind = kind, .number = number, .notified = notified, .host = ""};
}

TEST(Verdict, TheFirstFailureCountsAndNotItsConsequences) {
  struct Case {
    const char* name;
    JobEnd end;
    int exit_code;
    const char* said;
  };
  const Case cases[] = {
      {"all is well", {.ranks = {ended(0, Kind::kExit, 0), ended(1, Kind::kExit, 0)}}, 0, ""},
      {"a code, then notified ones",
       {.ranks = {ended(1, Kind::kExit, 3), ended(0, Kind::kSignal, SIGTERM, true)}, .mpirun_code = 3},
       3,
       "rank 1 ended"},
      {"a signal",
       {.ranks = {ended(2, Kind::kSignal, SIGSEGV), ended(0, Kind::kExit, 7)}},
       7,
       "rank 2 was killed by SIGSEGV"},
      {"a peer notices sooner", {.ranks = {ended(0, Kind::kExit, 7), ended(2, Kind::kExit, 6)}}, 6, "rank 2"},
      {"only peers notice", {.ranks = {ended(1, Kind::kExit, 7), ended(2, Kind::kExit, 7)}}, 7, "rank 1"},
      {"MPI_Abort",
       {.ranks = {ended(0, Kind::kSignal, SIGTERM, true), ended(1, Kind::kExit, 5, true)},
        .mpirun_code = 5,
        .aborted_by = 1},
       5,
       "rank 1 ended the job with exit code 5"},
      {"a rank leaves early",
       {.ranks = {ended(1, Kind::kExit, 0), ended(0, Kind::kSignal, SIGTERM, true)}, .mpirun_code = 1},
       7,
       "rank 1 ended with exit code 0 while others"},
      {"a rank leaves early and the others notice",
       {.ranks = {ended(0, Kind::kExit, 0), ended(1, Kind::kExit, 7, true)}, .mpirun_code = 1, .aborted_by = 1},
       7,
       "rank 0 ended with exit code 0"},
      {"on request", {.ranks = {ended(0, Kind::kExit, 75), ended(1, Kind::kExit, 75)}}, 75, ""},
      {"asked", {.ranks = {ended(0, Kind::kExit, 75), ended(1, Kind::kExit, 75)}, .asked_by = SIGTERM}, 75, ""},
      {"asked, but it was done", {.ranks = {ended(0, Kind::kExit, 0)}, .asked_by = SIGTERM}, 0, ""},
      {"asked, knew no better", {.ranks = {ended(0, Kind::kSignal, SIGUSR1)}, .asked_by = SIGINT}, 130, "SIGINT"},
      {"asked twice",
       {.ranks = {ended(0, Kind::kSignal, SIGKILL, true)}, .asked_by = SIGTERM, .forced = true},
       143,
       "at once"},
      {"asked, but the save failed", {.ranks = {ended(0, Kind::kExit, 6)}, .asked_by = SIGTERM}, 6, "rank 0"},
      {"a stopped rank", {.ranks = {ended(1, Kind::kStopped, SIGSTOP)}}, 7, "rank 1 was suspended by SIGSTOP"},
      {"the others lose a stopped rank",
       {.ranks = {ended(0, Kind::kExit, 7), ended(1, Kind::kStopped, SIGSTOP, true)},
        .mpirun_code = 7,
        .aborted_by = 0},
       7,
       "rank 1 was suspended by SIGSTOP"},
      {"a lost host", {.ranks = {ended(1, Kind::kLost, 0)}}, 7, "rank 1 is unreachable"},
      {"mpirun fails", {.ranks = {ended(0, Kind::kNever, 0)}, .mpirun_code = 213}, 7, "213"},
      {"mpirun is killed",
       {.ranks = {ended(0, Kind::kSignal, SIGKILL, true)}, .mpirun_code = -SIGKILL},
       7,
       "mpirun was killed"},
  };
  for (const auto& [name, end, exit_code, said] : cases) {
    const Verdict verdict = judge(end);
    EXPECT_EQ(verdict.exit_code, exit_code) << name;
    EXPECT_NE(verdict.line.find(said), std::string::npos) << name << ": " << verdict.line;
    EXPECT_EQ(verdict.line.empty(), *said == '\0') << name << ": " << verdict.line;
  }
}

TEST(Verdict, AReportKeepsWhatItSays) {
  for (const auto& end : {ended(0, Kind::kExit, 3), ended(0, Kind::kSignal, 9, true)}) {
    const auto read = decode_end(encode_end(end));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->kind, end.kind);
    EXPECT_EQ(read->number, end.number);
    EXPECT_EQ(read->notified, end.notified);
  }
  EXPECT_FALSE(decode_end("exit"));
  EXPECT_FALSE(decode_end("fell 3"));
}

JobFailure failed(int exit_code, std::optional<std::int64_t> step, const std::string& cause = "rank 1") {
  return {.verdict = {.exit_code = exit_code, .line = cause, .cause = cause}, .step = step};
}

TEST(Restarts, OnlyFailuresThatMayPass) {
  for (const int code : {1, 6, 7, 8, 9}) EXPECT_TRUE(decide_restart(3, 1, "c", failed(code, 5), {}).again) << code;
  for (const int code : {2, 3, 4, 5, 42}) {
    const auto decision = decide_restart(3, 1, "c", failed(code, 5), {});
    EXPECT_FALSE(decision.again) << code;
    EXPECT_NE(decision.line.find("no restart"), std::string::npos) << code;
  }
  EXPECT_EQ(decide_restart(0, 1, "c", failed(7, 5), {}).line, "");
}

TEST(Restarts, NeedCheckpointsAndEndWhenNothingChanges) {
  EXPECT_NE(decide_restart(3, 1, "", failed(7, 5), {}).line.find("checkpoint.path"), std::string::npos);
  EXPECT_FALSE(decide_restart(3, 2, "c", failed(7, 5), failed(7, 5)).again);
  EXPECT_FALSE(decide_restart(3, 2, "c", failed(7, {}), failed(7, {})).again);
  EXPECT_TRUE(decide_restart(3, 2, "c", failed(7, 6), failed(7, 5)).again);
  EXPECT_TRUE(decide_restart(3, 2, "c", failed(7, 5, "rank 2"), failed(7, 5)).again);
  EXPECT_TRUE(decide_restart(3, 3, "c", failed(7, 6), failed(7, 5)).again);
  EXPECT_FALSE(decide_restart(3, 4, "c", failed(7, 6), failed(7, 5)).again);
}

TEST(Restarts, WaitLongerEachTime) {
  double expected = 1;
  for (int starts = 1; starts < 12; ++starts, expected = std::min(60.0, 2 * expected))
    EXPECT_EQ(decide_restart(99, starts, "c", failed(7, starts), {}).seconds, expected) << starts;
}

}  // namespace
}  // namespace gantry::launcher
