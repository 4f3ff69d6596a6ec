// Under `gantry launch` the launcher is the only failure detector: it watches the ranks by their shims and notifies
// them.
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <regex>

#include "background.h"
#include "gantry/comm/control/control_plane.h"
#include "gantry/core/error.h"

namespace gantry::testing {
namespace {

// The failures that the control plane of a rank has received. Its thread writes them under the mutex.
class HeardFailures {
 public:
  ControlEvents events() {
    const auto keep = [this](const JobFailure& failure) {
      const std::lock_guard lock(mutex_);
      failure_ = failure;
      changed_.notify_all();
    };
    return {.on_lost = keep, .on_abort = keep};
  }
  std::optional<JobFailure> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return failure_.has_value(); });
    return failure_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<JobFailure> failure_;
};

// A launch of two shells that wait for a file; this process takes the parts of their Gantry programs.
class LaunchedShells {
 public:
  explicit LaunchedShells(const std::string& flags = "")
      : launch_(fmt::format("{} launch -n 2 --log-dir {} {} -- sh -c 'echo at $GANTRY_LAUNCH; while [ ! -e {} ]; do "
                            "sleep 0.05; done'",
                            gantry_program(), scratch_ / "logs", flags, scratch_ / "end")) {
    EXPECT_TRUE(launch_.wait_until([&] {
      const std::string text = read_file(scratch_ / "logs/start-0/rank-0.log");
      std::smatch found;
      if (!std::regex_search(text, found, std::regex("at ([^\n]*)\n")) || process_of(1) == 0) return false;
      meeting_ = decode_meeting(found[1]).value_or(Rendezvous{});
      return true;
    })) << launch_.err();
  }

  std::unique_ptr<ControlPlane> join(int rank, HeardFailures& heard) const {
    const ControlOptions options{
        .rank = rank, .ranks = 2, .hub = HubPlace::launch, .timeout_seconds = 30, .describe_rank = [](int of) {
          return fmt::format("rank {} (tp {})", of, of);
        }};
    return ControlPlane::join(options, heard.events(), meeting_);
  }
  pid_t process_of(int rank) const {
    const std::string text = read_file(scratch_ / "logs/start-0/processes");
    std::smatch found;
    const bool known = std::regex_search(text, found, std::regex(fmt::format("rank {} on .*: process ([0-9]+)", rank)));
    return known ? std::stoi(found[1]) : 0;
  }
  // Lets the shells end, if they still run; how the launch ended.
  Outcome end() {
    std::ofstream(scratch_ / "end") << "now";
    return launch_.wait(60);
  }

 private:
  ScratchFolder scratch_;
  Background launch_;
  Rendezvous meeting_;
};

TEST(OneDetector, RanksOfALaunchMeetAtItOneJobAfterTheOther) {
  LaunchedShells shells;
  for (int job = 0; job < 2; ++job) {
    HeardFailures heard[2];
    const auto first = shells.join(0, heard[0]), second = shells.join(1, heard[1]);
    first->rendezvous();
    second->rendezvous();
    auto left = std::async(std::launch::async, [&] { first->leave(); });
    second->leave();
    left.get();
  }
  const Outcome ended = shells.end();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
}

TEST(OneDetector, TheEndOfARankIsReportedToTheOthersAsItsShimSawIt) {
  LaunchedShells shells;
  HeardFailures heard[2];
  const auto first = shells.join(0, heard[0]), second = shells.join(1, heard[1]);
  first->rendezvous();
  ::kill(shells.process_of(1), SIGKILL);
  const auto failure = heard[0].wait();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->exit_code, PeerError::kExitCode);
  EXPECT_EQ(failure->cause, "rank 1 was killed by SIGKILL");
  EXPECT_THROW(first->leave(), PeerError);
  const Outcome ended = shells.end();
  EXPECT_EQ(ended.exit_code, PeerError::kExitCode) << ended.err;
  EXPECT_EQ(ended.err,
            "error: launch: rank 1 was killed by SIGKILL; check its log and the memory of its host, then start the job "
            "again\n");
}

// They send no heartbeats: a rank that stands still is found by its shim alone.
TEST(OneDetector, ARankThatStandsStillIsFoundByItsShim) {
  LaunchedShells shells("--stopped-seconds 1");
  HeardFailures heard[2];
  const auto first = shells.join(0, heard[0]), second = shells.join(1, heard[1]);
  first->rendezvous();
  ::kill(shells.process_of(0), SIGSTOP);
  const auto failure = heard[1].wait();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->cause, "rank 0 was suspended by SIGSTOP and did not continue");
  EXPECT_EQ(shells.end().exit_code, PeerError::kExitCode);
}

// Its program lives, so no shim has anything to tell.
TEST(OneDetector, ARankThatLeavesBeforeItsWorkIsDoneEndsTheJob) {
  LaunchedShells shells;
  HeardFailures heard[2];
  const auto first = shells.join(0, heard[0]);
  auto second = shells.join(1, heard[1]);
  first->rendezvous();
  second->rendezvous();
  second.reset();
  const auto failure = heard[0].wait();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_TRUE(failure->cause.starts_with("rank 1: its connection closed before its work was done")) << failure->cause;
  const Outcome ended = shells.end();
  EXPECT_EQ(ended.exit_code, PeerError::kExitCode) << ended.err;
  EXPECT_EQ(ended.err,
            "error: launch: rank 1 has left the job before its work was done; check its log and the memory of its "
            "host, then start the job again\n");
}

// Several fail at once: all of them hear whose failure stands, and that one is to print it.
TEST(OneDetector, TheFirstFailureIsReportedToEveryRankThatFailed) {
  LaunchedShells shells;
  HeardFailures heard[2];
  const auto first = shells.join(0, heard[0]), second = shells.join(1, heard[1]);
  first->rendezvous();
  second->rendezvous();
  first->tell(4, "rank 0 (tp 0): data: the cause");
  second->tell(3, "rank 1 (tp 1): another one");
  const auto notified = heard[0].wait(), secondary_report = heard[1].wait();
  ASSERT_TRUE(notified && secondary_report);
  EXPECT_EQ(notified->rank, secondary_report->rank);
  EXPECT_EQ(notified->cause, secondary_report->cause);
  shells.end();
}

}  // namespace
}  // namespace gantry::testing
