// The control plane of a job. The ranks are control planes of this process, or sockets that imitate one.
#include "gantry/comm/control/control_plane.h"

#include <chrono>
#include <dirent.h>
#include <future>
#include <gtest/gtest.h>
#include <thread>

#include "control_job.h"
#include "gantry/core/error.h"
#include "raw_socket.h"

namespace gantry::testing {
namespace {

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  DIR* list = ::opendir(folder);
  while (::readdir(list)) ++count;
  ::closedir(list);
  return count;
}

// Several heartbeat intervals, so that an idle job sends some heartbeats.
constexpr auto kSomeSignsOfLife = std::chrono::milliseconds(250);

TEST(ControlPlane, AJobMeetsAndLeavesWithoutAWordAndLeaksNothing) {
  { Job warm_up(2); }  // opens the descriptors that libraries keep open
  const std::size_t descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  for (const int ranks : {1, 2, 5}) {
    Job job(ranks);
    EXPECT_EQ(entries("/proc/self/task"), threads + static_cast<std::size_t>(ranks));  // one thread each
    std::this_thread::sleep_for(kSomeSignsOfLife);
    job.leave();
    for (auto& reports : job.reports) EXPECT_TRUE(reports.silent());
  }
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries("/proc/self/task"), threads);
}

TEST(ControlPlane, AFailureIsReportedToAllAndTheFirstOneIsKept) {
  Job job(4);
  job.planes[2]->tell(4, "rank 2 (tp 2): data: the cause");
  for (const int rank : {0, 1, 3}) {
    const auto notified = job.reports[rank].notified();
    ASSERT_TRUE(notified) << rank;
    EXPECT_EQ(notified->rank, 2);
    EXPECT_EQ(notified->exit_code, 4);
    EXPECT_EQ(notified->cause, "rank 2 (tp 2): data: the cause");
  }
  job.planes[1]->tell(3, "a later one");
  try {
    job.planes[3]->leave();
    ADD_FAILURE();
  } catch (const PeerError& error) {
    EXPECT_STREQ(error.what(), "rank 2 (tp 2): data: the cause");
  }
}

// Otherwise a rank that fails because of another rank's failure would report it as its own.
TEST(ControlPlane, LeaveThrowsAnotherRanksFailureOnlyAfterItsEvent) {
  Reports reports, member_reports;
  std::promise<void> left;
  std::future<void> has_left = left.get_future();
  bool event_was_first = false;
  ControlEvents events = reports.events();
  events.on_abort = [&](const JobFailure&) {
    event_was_first = has_left.wait_for(kSomeSignsOfLife) == std::future_status::timeout;
  };
  const auto hub = ControlPlane::host(options_of(0, 2, reports), events, "127.0.0.1");
  const auto member = ControlPlane::join(options_of(1, 2, member_reports), member_reports.events(), hub->meeting());
  member->rendezvous();
  member->tell(4, "rank 1 (tp 1): the cause");
  EXPECT_THROW(hub->leave(), PeerError);
  left.set_value();
  EXPECT_TRUE(event_was_first);
}

TEST(ControlPlane, ARankWhoseProcessEndsIsLostAtOnceAndNamedToAll) {
  Job job(3);
  job.planes[2].reset();
  const auto lost = job.reports[0].lost();
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 2);
  EXPECT_EQ(lost->exit_code, 7);
  EXPECT_TRUE(lost->cause.starts_with("rank 2 (tp 2): its connection closed before its work was done")) << lost->cause;
  const auto notified = job.reports[1].notified();
  ASSERT_TRUE(notified);
  EXPECT_EQ(notified->cause, lost->cause);
}

TEST(ControlPlane, ThatRank0EndedIsFoundByEachOther) {
  Job job(3);
  job.planes[0].reset();
  for (const int rank : {1, 2}) {
    const auto lost = job.reports[rank].lost();
    ASSERT_TRUE(lost);
    EXPECT_TRUE(lost->cause.starts_with("rank 0 (tp 0): its connection closed")) << lost->cause;
  }
}

// A rank that sends a hello frame and then nothing, like a stopped process.
TEST(ControlPlane, ASilentRankIsLostAndReportedWithItsSilence) {
  Reports hub_reports, member_reports;
  ControlOptions hub_options = options_of(0, 3, hub_reports);
  hub_options.lost_after_seconds = 1;
  const auto hub = ControlPlane::host(hub_options, hub_reports.events(), "127.0.0.1");
  const auto member = ControlPlane::join(options_of(1, 3, member_reports), member_reports.events(), hub->meeting());
  const RawSocket stopped = RawSocket::connect(hub->meeting().port);
  ASSERT_TRUE(stopped.send(hello_of(hub->meeting().token, 2, 3)));
  hub->rendezvous();
  const auto lost = hub_reports.lost();
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 2);
  EXPECT_TRUE(lost->cause.starts_with("rank 2 (tp 2): no heartbeat for 1.")) << lost->cause;
  const auto notified = member_reports.notified();
  ASSERT_TRUE(notified);
  EXPECT_EQ(notified->cause, lost->cause);
  EXPECT_EQ(notified->exit_code, 7);
}

TEST(ControlPlane, ASilentRank0IsLostToo) {
  const RawListener hub;
  Reports reports;
  ControlOptions options = options_of(1, 2, reports);
  options.lost_after_seconds = 1;
  const auto member = ControlPlane::join(options, reports.events(), {"127.0.0.1", hub.port(), random_job_token()});
  const RawSocket stopped = hub.accept();
  stopped.send(encode_frame(FrameKind::begin));
  member->rendezvous();
  const auto lost = reports.lost();
  ASSERT_TRUE(lost);
  EXPECT_TRUE(lost->cause.starts_with("rank 0 (tp 0): no heartbeat for 1.")) << lost->cause;
}

TEST(ControlPlane, RendezvousNamesWhoHasNotCome) {
  Reports reports, member_reports;
  ControlOptions options = options_of(0, 4, reports);
  options.timeout_seconds = 1;
  const auto hub = ControlPlane::host(options, reports.events(), "127.0.0.1");
  const auto member = ControlPlane::join(options_of(2, 4, member_reports), member_reports.events(), hub->meeting());
  try {
    hub->rendezvous();
    ADD_FAILURE();
  } catch (const PeerError& error) {
    const std::string line = error.what();
    EXPECT_NE(line.find("waited 1 s for rank 1 (tp 1), rank 3 (tp 3) at 127.0.0.1:"), std::string::npos) << line;
  }
}

TEST(ControlPlane, WhatEachRankBringsComesToAllAgainAndAgain) {
  Job job(3);
  for (const std::string round : {"first", "second"}) {
    std::vector<std::future<std::vector<std::string>>> answers;
    for (int rank = 0; rank < 3; ++rank)
      answers.push_back(std::async(std::launch::async, [&, rank] {
        return job.planes[static_cast<std::size_t>(rank)]->gather(round + std::to_string(rank));
      }));
    for (auto& answer : answers)
      EXPECT_EQ(answer.get(), (std::vector<std::string>{round + "0", round + "1", round + "2"}));
  }
  EXPECT_EQ(job.planes[1]->address(), "127.0.0.1");
  job.leave();
}

TEST(ControlPlane, GatheringNamesWhoBringsNothing) {
  std::vector<Reports> reports(2);
  ControlOptions options = options_of(0, 2, reports[0]);
  options.timeout_seconds = 0.5;
  auto first = ControlPlane::host(options, reports[0].events(), "127.0.0.1");
  auto second = ControlPlane::join(options_of(1, 2, reports[1]), reports[1].events(), first->meeting());
  first->rendezvous();
  second->rendezvous();
  try {
    first->gather("mine");
    ADD_FAILURE() << "it has waited for nobody";
  } catch (const PeerError& error) {
    EXPECT_NE(std::string(error.what()).find("waited 0.5 s for rank 1 (tp 1) to begin"), std::string::npos)
        << error.what();
  }
}

TEST(ControlPlane, LeavingNamesWhoIsNotDone) {
  Reports reports, member_reports;
  ControlOptions options = options_of(0, 2, reports);
  options.timeout_seconds = 0.3;
  const auto hub = ControlPlane::host(options, reports.events(), "127.0.0.1");
  const auto member = ControlPlane::join(options_of(1, 2, member_reports), member_reports.events(), hub->meeting());
  member->rendezvous();
  try {
    hub->leave();
    ADD_FAILURE();
  } catch (const PeerError& error) {
    EXPECT_NE(std::string(error.what()).find("waited 0.3 s for rank 1 (tp 1) to end"), std::string::npos);
  }
}

TEST(ControlPlane, EveryOtherRankHearsOnceThatOneWantsToStop) {
  for (const int asked : {0, 1, 2}) {
    SCOPED_TRACE(asked);
    Job job(3);
    job.reports[asked].wants_stop = true;
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == asked) continue;
      EXPECT_TRUE(job.reports[rank].heard_stop()) << rank;
      job.reports[rank].wants_stop = true;  // as after a late signal
    }
    job.leave();
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(job.reports[rank].stops(), rank == asked ? 0 : 1) << rank;
  }
}

// Rank 0 is notified too, and the job continues.
TEST(ControlPlane, ARequestForRecordsReachesEveryOtherRank) {
  Job job(3);
  job.planes[1]->request_records();
  for (const int rank : {0, 2}) EXPECT_TRUE(job.reports[rank].heard_record_request()) << rank;
  job.planes[0]->request_records();  // the rank of the hub
  EXPECT_TRUE(job.reports[1].heard_record_request());
  job.leave();
  EXPECT_EQ(job.reports[0].record_requests(), 1u);
  EXPECT_EQ(job.reports[1].record_requests(), 1u);
  EXPECT_EQ(job.reports[2].record_requests(), 2u);
}

TEST(ControlPlane, EveryRankHearsWhoHasLeftBeforeTheOthers) {
  Reports reports, early_reports, late_reports;
  const auto hub = ControlPlane::host(options_of(0, 3, reports), reports.events(), "127.0.0.1");
  const auto early = ControlPlane::join(options_of(1, 3, early_reports), early_reports.events(), hub->meeting());
  const auto late = ControlPlane::join(options_of(2, 3, late_reports), late_reports.events(), hub->meeting());
  hub->rendezvous();
  std::thread leaving([&] { early->leave(); });
  EXPECT_EQ(reports.left(), std::set<int>{1});
  EXPECT_EQ(late_reports.left(), std::set<int>{1});
  std::thread last([&] { late->leave(); });
  hub->leave();
  last.join();
  leaving.join();
  EXPECT_TRUE(reports.silent() && early_reports.silent() && late_reports.silent());
}

// Rank 0's control thread answers while the rank's work is still in progress.
TEST(ControlPlane, LeavingNamesRankZeroAndOthersThatAreNotDone) {
  Reports reports, done_reports, late_reports;
  ControlOptions quick = options_of(1, 3, done_reports);
  quick.timeout_seconds = 0.3;
  const auto hub = ControlPlane::host(options_of(0, 3, reports), reports.events(), "127.0.0.1");
  const auto done = ControlPlane::join(quick, done_reports.events(), hub->meeting());
  const auto late = ControlPlane::join(options_of(2, 3, late_reports), late_reports.events(), hub->meeting());
  hub->rendezvous();
  try {
    done->leave();
    ADD_FAILURE();
  } catch (const PeerError& error) {
    const std::string line = error.what();
    EXPECT_NE(line.find("rank 1 (tp 1) waited 3.3 s for rank 0 (tp 0), rank 2 (tp 2) to end"), std::string::npos)
        << line;
  }
}

// Delay before the port is closed, while the rank still tries to connect.
constexpr auto kListens = std::chrono::seconds(1);

// Rank 0's port accepts connections, but the listener does not belong to this job.
TEST(ControlPlane, ARankThatIsNeverHeardSaysWhy) {
  auto listener = std::make_unique<RawListener>();
  Reports reports;
  ControlOptions options = options_of(1, 2, reports);
  options.timeout_seconds = 0.1;
  const auto member =
      ControlPlane::join(options, reports.events(), {"127.0.0.1", listener->port(), random_job_token()});
  for (int i = 0; i < 3; ++i) listener->accept();  // the accepted socket is closed at once
  std::thread closer([&] {
    std::this_thread::sleep_for(kListens);
    listener.reset();
  });
  try {
    member->rendezvous();
    ADD_FAILURE();
  } catch (const PeerError& error) {
    EXPECT_NE(std::string(error.what()).find("waited 3.1 s for rank 0 (tp 0) (Connection refused) at 127.0.0.1:"),
              std::string::npos)
        << error.what();
  }
  closer.join();
  EXPECT_TRUE(reports.silent());
}

TEST(ControlPlane, ARankThatSendsNoFramesIsLost) {
  Reports reports;
  const auto hub = ControlPlane::host(options_of(0, 2, reports), reports.events(), "127.0.0.1");
  const RawSocket rank = RawSocket::connect(hub->meeting().port);
  rank.send(hello_of(hub->meeting().token, 1, 2));
  hub->rendezvous();
  rank.send("what is this?");
  const auto lost = reports.lost();
  ASSERT_TRUE(lost);
  EXPECT_NE(lost->cause.find("rank 1 (tp 1): it sent an invalid control-plane frame"), std::string::npos);
}

}  // namespace
}  // namespace gantry::testing
