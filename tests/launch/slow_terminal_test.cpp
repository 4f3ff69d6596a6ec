// If the output of `gantry launch` is not read, its ranks block on their output: no output is lost or piles up in
// memory.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "background.h"

namespace gantry::testing {
namespace {

constexpr long kMegabytes = 128, kMostMegabytes = 64;  // output of the rank; limit on the memory of a process

// A line of /proc/PROCESS/status, in MB.
long megabytes_of(pid_t process, const std::string& line) {
  const std::string text = read_file(fmt::format("/proc/{}/status", process));
  const auto at = text.find(line + ":");
  return at == std::string::npos ? -1 : std::atol(text.c_str() + at + line.size() + 1) / 1024;
}

pid_t parent_of(pid_t process) {
  const std::string text = read_file(fmt::format("/proc/{}/status", process));
  const auto at = text.find("PPid:");
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + 5);
}

// Whether it sits in a write to its stdout: the system call's number, and the first argument.
bool is_writing(pid_t process) {
  return read_file(fmt::format("/proc/{}/syscall", process)).starts_with(fmt::format("{} 0x1 ", SYS_write));
}

// Returns the number of bytes written so far, from /proc.
std::string written_by(pid_t process) {
  const std::string text = read_file(fmt::format("/proc/{}/io", process));
  return text.substr(0, text.find("syscr"));
}

TEST(SlowTerminal, ARankWaitsForItAndNothingIsLostOrPilesUp) {
  if (read_file("/proc/self/syscall").empty()) GTEST_SKIP() << "needs /proc/PID/syscall";
  const ScratchFolder scratch;
  const std::string terminal = scratch / "terminal", begun = scratch / "begun", done = scratch / "done";
  ASSERT_EQ(::mkfifo(terminal.c_str(), 0600), 0);
  const int reading = ::open(terminal.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  Background run(fmt::format("{} launch -n 1 -- sh -c 'echo $$ > {}; head -c {}M /dev/zero; touch {}' > {}",
                             gantry_program(), begun, kMegabytes, done, terminal));
  // The writer is the shell's child. It stands still where it has written no more since the look before.
  pid_t writer = 0;
  std::string before;
  const auto stands_still = [&] {
    const int shell = std::atoi(read_file(begun).c_str());
    std::istringstream children(read_file(fmt::format("/proc/{}/task/{}/children", shell, shell)));
    if (shell <= 0 || !(children >> writer) || !is_writing(writer)) return false;
    const std::string now = written_by(writer);
    return !now.empty() && std::exchange(before, now) == now;
  };
  ASSERT_TRUE(run.wait_until(stands_still)) << run.err();
  const pid_t shim = parent_of(parent_of(writer));
  EXPECT_FALSE(std::filesystem::exists(done));

  ::fcntl(reading, F_SETFL, 0);
  long long zeros = 0;
  std::array<char, 65536> block;
  long most = 0;
  for (ssize_t got; (got = ::read(reading, block.data(), block.size())) > 0;) {
    zeros += std::count(block.begin(), block.begin() + got, '\0');
    most = std::max(most, megabytes_of(shim, "VmHWM"));
  }
  ::close(reading);
  EXPECT_EQ(zeros, kMegabytes << 20);
  EXPECT_GT(most, 0);
  EXPECT_LT(most, kMostMegabytes);
  EXPECT_EQ(run.wait().exit_code, 0) << run.err();
  EXPECT_TRUE(std::filesystem::exists(done));
}

// The launch has filled a pipe: signals reach the ranks all the same, and a second one ends the launch, which would
// wait for the reader.
TEST(SlowTerminal, SignalsAreServedWhileNobodyReads) {
  const ScratchFolder scratch;
  const std::string terminal = scratch / "terminal", begun = scratch / "begun", asked = scratch / "asked";
  ASSERT_EQ(::mkfifo(terminal.c_str(), 0600), 0);
  const int reading = ::open(terminal.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  Background run(
      fmt::format("{} launch --backend tcp -n 1 -- sh -c 'trap \"touch {}; exit 0\" USR1; touch {}; "
                  "(trap \"\" USR1; exec head -c 4M /dev/zero) & while :; do sleep 0.05; done' > {} 2>&1",
                  gantry_program(), asked, begun, terminal));
  // Until the pipe is full: a pipe may keep less than a page free.
  const auto is_full = [&] {
    int bytes = 0;
    ::ioctl(reading, FIONREAD, &bytes);
    return std::filesystem::exists(begun) && bytes + ::getpagesize() > ::fcntl(reading, F_GETPIPE_SZ);
  };
  ASSERT_TRUE(run.wait_until(is_full)) << run.err();
  run.signal(SIGTERM);
  EXPECT_TRUE(run.wait_until([&] { return std::filesystem::exists(asked); })) << run.err();
  run.signal(SIGTERM);
  EXPECT_NE(run.wait().exit_code, 124);
  ::close(reading);
}

// A rank that dies while its pipe is full is reported at once: the others are ended although the output is not read.
TEST(SlowTerminal, ARankThatDiesMeanwhileIsReported) {
  if (read_file("/proc/self/syscall").empty()) GTEST_SKIP() << "needs /proc/PID/syscall";
  const ScratchFolder scratch;
  const std::string terminal = scratch / "terminal", process = scratch / "process", other = scratch / "other";
  ASSERT_EQ(::mkfifo(terminal.c_str(), 0600), 0);
  const int reading = ::open(terminal.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  Background run(
      fmt::format("{} launch --backend tcp -n 2 -- sh -c 'if [ $GANTRY_RANK = 1 ]; then echo $$ > {}; exec "
                  "head -c 64M /dev/zero; fi; echo $$ > {}; sleep 600' > {}",
                  gantry_program(), process, other, terminal));
  std::string before;
  const auto stands_still = [&] {
    const int writer = std::atoi(read_file(process).c_str());
    if (writer <= 0 || !is_writing(writer) || read_file(other).empty()) return false;
    const std::string now = written_by(writer);
    return !now.empty() && std::exchange(before, now) == now;
  };
  ASSERT_TRUE(run.wait_until(stands_still)) << run.err();
  ::kill(std::atoi(read_file(process).c_str()), SIGKILL);
  const auto other_ended = [&] { return ::kill(std::atoi(read_file(other).c_str()), 0) != 0; };
  EXPECT_TRUE(run.wait_until(other_ended)) << run.err();
  ::close(reading);  // the launch waits for the reader, or for its end
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.exit_code, 7) << outcome.err;
  EXPECT_NE(outcome.err.find("rank 1"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("SIGKILL"), std::string::npos) << outcome.err;
}

TEST(SlowTerminal, AFullDiskCostsNoRank) {
  const Outcome outcome = run_program(
      fmt::format("{} launch --backend tcp -n 2 -- sh -c 'echo a line; echo another' > /dev/full", gantry_program()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err,
            "launch: stdout cannot be written: No space left on device; the job continues, and lines are lost until "
            "there is room\n");
}

TEST(SlowTerminal, AClosedPipeCostsNoRank) {
  const ScratchFolder scratch;
  const std::string done = scratch / "done";
  const Outcome outcome = run_program(fmt::format(
      "{} launch --backend tcp -n 1 -- sh -c 'for i in 1 2 3 4 5 6 7 8; do echo line; sleep 0.05; done; touch {}' | "
      "head -1",
      gantry_program(), done));
  EXPECT_EQ(outcome.out, "[0] line\n");
  EXPECT_TRUE(std::filesystem::exists(done)) << outcome.err;
}

}  // namespace
}  // namespace gantry::testing
