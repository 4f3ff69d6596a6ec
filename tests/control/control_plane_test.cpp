// The control plane of a job whose ranks are control planes of this process, or sockets that only look like one.
#include "gantry/comm/control/control_plane.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <dirent.h>
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <type_traits>
#include <vector>

#include "gantry/core/error.h"
#include "raw_socket.h"

namespace gantry::testing {
namespace {

constexpr std::chrono::seconds kLong{20};

// What the plane of one rank reported. Written by its thread, read by the test; guarded by its mutex.
class Reports {
 public:
  ControlEvents events() {
    return {[this](const JobFailure& failure) { add(lost_, failure); },
            [this](const JobFailure& failure) { add(told_, failure); },
            [this](const std::set<int>& ranks) { add(left_, ranks); }, [this] { add(stops_, true); }};
  }
  auto warner() {
    return [this](const std::string& line) { add(warnings_, line); };
  }
  std::optional<JobFailure> lost() { return first(lost_); }
  std::optional<JobFailure> told() { return first(told_); }
  // Waits until there are so many.
  std::vector<std::string> warnings(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLong, [&] { return warnings_.size() >= count; });
    return warnings_;
  }
  // The first ranks of which it was told that they have left.
  std::set<int> left() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return !left_.empty(); }) ? left_.front() : std::set<int>();
  }
  bool heard_stop() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return !stops_.empty(); });
  }
  std::size_t stops() {
    const std::lock_guard lock(mutex_);
    return stops_.size();
  }
  std::atomic<bool> wants_stop{false};  // this rank does
  bool silent() {
    const std::lock_guard lock(mutex_);
    return lost_.empty() && told_.empty() && warnings_.empty();
  }

 private:
  template <class Value>
  void add(std::vector<Value>& values, const std::type_identity_t<Value>& value) {
    {
      const std::lock_guard lock(mutex_);
      values.push_back(value);
    }
    changed_.notify_all();
  }
  std::optional<JobFailure> first(std::vector<JobFailure>& failures) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kLong, [&] { return !failures.empty(); })) return std::nullopt;
    return failures.front();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<JobFailure> lost_, told_;
  std::vector<std::string> warnings_;
  std::vector<std::set<int>> left_;
  std::vector<char> stops_;
};

ControlOptions options_of(int rank, int ranks, Reports& reports) {
  return {.rank = rank,
          .ranks = ranks,
          .heartbeat_seconds = 0.1,
          .lost_after_seconds = 5,
          .timeout_seconds = 20,
          .handshake_seconds = 5,
          .describe_rank = [](int of) { return "rank " + std::to_string(of) + " (tp " + std::to_string(of) + ")"; },
          .warn = reports.warner(),
          .wants_stop = [&reports] { return reports.wants_stop.load(); }};
}

// All ranks of a job.
struct Job {
  explicit Job(int ranks) : reports(static_cast<std::size_t>(ranks)) {
    planes.push_back(ControlPlane::host(options_of(0, ranks, reports[0]), reports[0].events(), "127.0.0.1"));
    for (int rank = 1; rank < ranks; ++rank)
      planes.push_back(
          ControlPlane::join(options_of(rank, ranks, reports[rank]), reports[rank].events(), planes[0]->meeting()));
    for (auto& plane : planes) plane->rendezvous();
  }
  void leave() {
    std::vector<std::future<void>> ends;
    for (auto& plane : planes) ends.push_back(std::async(std::launch::async, [&plane] { plane->leave(); }));
    for (auto& end : ends) end.get();
  }
  std::vector<Reports> reports;
  std::vector<std::unique_ptr<ControlPlane>> planes;
};

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  DIR* list = ::opendir(folder);
  while (::readdir(list)) ++count;
  ::closedir(list);
  return count;
}

std::string hello_of(const JobToken& token, int rank, int ranks) {
  return encode_hello({.token = token, .rank = rank, .ranks = ranks, .process = 1, .host = "a"});
}

// Several heartbeats: what a job that does nothing says on its way.
constexpr auto kSomeSignsOfLife = std::chrono::milliseconds(250);

TEST(ControlPlane, AJobMeetsAndLeavesWithoutAWordAndLeaksNothing) {
  { Job warm_up(2); }  // what libraries open once
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

TEST(ControlPlane, AFailureIsToldToAllAndTheFirstOneStands) {
  Job job(4);
  job.planes[2]->tell(4, "rank 2 (tp 2): data: the cause");
  for (const int rank : {0, 1, 3}) {
    const auto told = job.reports[rank].told();
    ASSERT_TRUE(told) << rank;
    EXPECT_EQ(told->rank, 2);
    EXPECT_EQ(told->exit_code, 4);
    EXPECT_EQ(told->cause, "rank 2 (tp 2): data: the cause");
  }
  job.planes[1]->tell(3, "a later one");
  try {
    job.planes[3]->leave();
    ADD_FAILURE();
  } catch (const PeerError& error) {
    EXPECT_STREQ(error.what(), "rank 2 (tp 2): data: the cause");
  }
}

// Else a rank that fails with another's cause would take it for its own.
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
  const auto told = job.reports[1].told();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->cause, lost->cause);
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

// A rank that says hello and then nothing, as a stopped one does.
TEST(ControlPlane, ASilentRankIsLostAndToldHowLong) {
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
  EXPECT_TRUE(lost->cause.starts_with("rank 2 (tp 2): no sign of life for 1.")) << lost->cause;
  const auto told = member_reports.told();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->cause, lost->cause);
  EXPECT_EQ(told->exit_code, 7);
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
  EXPECT_TRUE(lost->cause.starts_with("rank 0 (tp 0): no sign of life for 1.")) << lost->cause;
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
      job.reports[rank].wants_stop = true;  // as by a signal that comes late
    }
    job.leave();
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(job.reports[rank].stops(), rank == asked ? 0 : 1) << rank;
  }
}

// Rank 0 too; and the job goes on.
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

// Rank 0's control thread answers though its work goes on.
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

// Whatever other programs send before, between and after: one warning each, and the job goes its way.
TEST(ControlPlane, OtherConnectionsAreDroppedAndHarmNothing) {
  Reports reports, member_reports;
  ControlOptions options = options_of(0, 2, reports);
  options.handshake_seconds = 0.5;
  const auto hub = ControlPlane::host(options, reports.events(), "127.0.0.1");
  const int port = hub->meeting().port;
  const JobToken& token = hub->meeting().token;
  JobToken wrong = token;
  wrong[15] ^= 1;
  std::mt19937 random(3);
  std::string garbage(5000, '\0');
  for (char& byte : garbage) byte = static_cast<char>(random());
  std::string oversized = encode_frame(FrameKind::failure);
  oversized.replace(8, 4, "\xff\xff\xff\x7f");
  const std::vector<std::pair<std::string, std::string>> others = {
      {garbage, "it begins with other bytes"},
      {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it begins with other bytes"},
      {oversized, "a payload of 2147483647 bytes"},
      {hello_of(token, 1, 2).substr(0, 30), "it said not who it is within 0.5 s"},
      {"", "it said not who it is within 0.5 s"},
      {hello_of(wrong, 1, 2), "its token is not this job's"},
      {encode_failure({1, 1, "a lie"}), "its first frame is no hello"},
      {hello_of(token, 0, 2), "rank 0 is here already"},
      {hello_of(token, 1, 3), "its job has 3 ranks, not 2"},
  };
  std::size_t warned = 0;
  for (const auto& [bytes, why] : others) {
    const RawSocket other = RawSocket::connect(port);
    other.send(bytes);
    EXPECT_TRUE(other.closes()) << why;
    const auto warnings = reports.warnings(++warned);
    ASSERT_EQ(warnings.size(), warned) << why;
    EXPECT_NE(warnings.back().find("dropped a connection from 127.0.0.1:"), std::string::npos) << warnings.back();
    EXPECT_NE(warnings.back().find(why), std::string::npos) << warnings.back();
  }
  const auto member = ControlPlane::join(options_of(1, 2, member_reports), member_reports.events(), hub->meeting());
  hub->rendezvous();
  member->rendezvous();
  EXPECT_FALSE(RawSocket::connect(port).connected());  // nobody else is expected any more
  auto left = std::async(std::launch::async, [&] { member->leave(); });
  hub->leave();
  left.get();
  EXPECT_TRUE(member_reports.silent());
}

// More connections than rank 0 listens to at a time, who say nothing: a rank comes again until one of them had to go.
TEST(ControlPlane, ACrowdOfSilentConnectionsKeepsNoRankOut) {
  constexpr int kCrowd = 64 + 2 + 1;
  Reports reports, member_reports;
  ControlOptions options = options_of(0, 2, reports);
  options.handshake_seconds = 1;
  const auto hub = ControlPlane::host(options, reports.events(), "127.0.0.1");
  std::vector<RawSocket> crowd;
  for (int i = 0; i < kCrowd; ++i) crowd.push_back(RawSocket::connect(hub->meeting().port));
  EXPECT_TRUE(crowd.front().closes(500)) << "there is room for more";
  const auto member = ControlPlane::join(options_of(1, 2, member_reports), member_reports.events(), hub->meeting());
  hub->rendezvous();
  member->rendezvous();
  auto left = std::async(std::launch::async, [&] { member->leave(); });
  hub->leave();
  left.get();
  EXPECT_TRUE(member_reports.silent());
  EXPECT_FALSE(reports.warnings(1).empty());
}

// A port is closed while a rank still tries.
constexpr auto kListens = std::chrono::seconds(1);

// Rank 0's port answers, but nobody of this job.
TEST(ControlPlane, ARankThatIsNeverHeardSaysWhy) {
  auto listener = std::make_unique<RawListener>();
  Reports reports;
  ControlOptions options = options_of(1, 2, reports);
  options.timeout_seconds = 0.1;
  const auto member =
      ControlPlane::join(options, reports.events(), {"127.0.0.1", listener->port(), random_job_token()});
  for (int i = 0; i < 3; ++i) listener->accept();  // and closes
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

TEST(ControlPlane, ASecondHelloOfARankIsRefused) {
  Reports reports, member_reports;
  const auto hub = ControlPlane::host(options_of(0, 3, reports), reports.events(), "127.0.0.1");
  const std::string hello = hello_of(hub->meeting().token, 1, 3);
  const RawSocket first = RawSocket::connect(hub->meeting().port);
  first.send(hello);
  first.receive(kFrameHeadBytes);  // a sign of life at once: it is taken in
  const RawSocket second = RawSocket::connect(hub->meeting().port);
  second.send(hello);
  EXPECT_TRUE(second.closes());
  EXPECT_NE(reports.warnings(1).at(0).find("rank 1 is here already"), std::string::npos);
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
  EXPECT_NE(lost->cause.find("rank 1 (tp 1): sent what is no frame of the control plane"), std::string::npos);
}

TEST(ControlPlane, AnAddressThatIsNotThisHostsIsRefused) {
  Reports reports;
  EXPECT_THROW(ControlPlane::host(options_of(0, 2, reports), reports.events(), "192.0.2.1"), ResourceError);
}

}  // namespace
}  // namespace gantry::testing
