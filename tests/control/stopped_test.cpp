// Ranks that are processes, which signals stop, continue and kill.
#include <chrono>
#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "gantry/comm/control/control_plane.h"
#include "gantry/core/error.h"

namespace gantry::testing {
namespace {

using namespace std::chrono_literals;

// Durations of a stop: shorter than lost_after_seconds, and twice as long as it.
constexpr auto kBriefly = 900ms, kTwiceTheLimit = 4000ms;
// Time after a stop in which the processes receive heartbeats of each other again.
constexpr auto kAwake = 1000ms;

// Exit codes of a rank's process.
constexpr int kUnharmed = 0, kLost = 40, kNotified = 60;  // plus the lost or reported rank

struct Wire {
  int port = 0;
  JobToken token{};
};

ControlOptions options_of(int rank, int ranks) {
  return {.rank = rank,
          .ranks = ranks,
          .heartbeat_seconds = 0.2,
          .lost_after_seconds = 2,
          .timeout_seconds = 30,
          .describe_rank = [](int of) { return "rank " + std::to_string(of); }};
}

// Processes that are the ranks of a job. Each works until it reads a byte from its pipe, then leaves.
class Processes {
 public:
  explicit Processes(int ranks) {
    std::vector<int> meetings;
    int met[2];
    EXPECT_EQ(::pipe(met), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      int meeting[2], orders[2];
      EXPECT_EQ(::pipe(meeting), 0);
      EXPECT_EQ(::pipe(orders), 0);
      const pid_t id = ::fork();
      if (id == 0) {
        ::alarm(60);
        ::close(orders[1]);
        run(rank, ranks, rank == 0 ? meeting[1] : meetings.at(0), met[1], orders[0]);
      }
      ::close(orders[0]);
      ids_.push_back(id);
      orders_.push_back(orders[1]);
      if (rank == 0) {
        ::close(meeting[1]);
        Wire wire;
        EXPECT_EQ(::read(meeting[0], &wire, sizeof(wire)), static_cast<ssize_t>(sizeof(wire)));
        meetings.push_back(wire_file(wire));
      }
      ::close(meeting[0]);
      if (rank > 0) ::close(meeting[1]);
    }
    ::close(meetings.at(0));
    ::close(met[1]);
    char one = 0;
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(::read(met[0], &one, 1), 1);
    ::close(met[0]);
  }
  ~Processes() {
    for (const pid_t id : ids_) ::kill(id, SIGKILL), ::waitpid(id, nullptr, 0);
    for (const int order : orders_) ::close(order);
  }

  void signal(int rank, int signal) const { ::kill(ids_[rank], signal); }
  void let_leave() const {
    for (const int order : orders_) EXPECT_EQ(::write(order, "x", 1), 1);
  }
  // Returns the exit code of the rank's process, or the negative number of the signal that killed it.
  int end_of(int rank) {
    int status = 0;
    ::waitpid(ids_[rank], &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  // Returns a file from which each child reads the rendezvous, at offset 0.
  static int wire_file(const Wire& wire) {
    const int file = ::memfd_create("meeting", 0);
    EXPECT_EQ(::write(file, &wire, sizeof(wire)), static_cast<ssize_t>(sizeof(wire)));
    return file;
  }

  [[noreturn]] static void run(int rank, int ranks, int meeting, int met, int orders) {
    const ControlEvents events = {[](const JobFailure& failure) { ::_exit(kLost + failure.rank); },
                                  [](const JobFailure& failure) { ::_exit(kNotified + failure.rank); }};
    try {
      std::unique_ptr<ControlPlane> plane;
      Wire wire;
      if (rank == 0) {
        plane = ControlPlane::host(options_of(rank, ranks), events, "127.0.0.1");
        wire = {plane->meeting().port, plane->meeting().token};
        if (::write(meeting, &wire, sizeof(wire)) != static_cast<ssize_t>(sizeof(wire))) ::_exit(1);
      } else {
        if (::pread(meeting, &wire, sizeof(wire), 0) != static_cast<ssize_t>(sizeof(wire))) ::_exit(1);
        plane = ControlPlane::join(options_of(rank, ranks), events, {"127.0.0.1", wire.port, wire.token});
      }
      plane->rendezvous();
      if (::write(met, "m", 1) != 1) ::_exit(1);
      char order = 0;
      while (::read(orders, &order, 1) < 0) {
      }
      plane->leave();
      plane.reset();
    } catch (const PeerError&) {
      for (;;) ::pause();  // the control event ends the process
    }
    ::_exit(kUnharmed);
  }

  std::vector<pid_t> ids_;
  std::vector<int> orders_;
};

TEST(Stopped, ABriefStopOfAnyRankHarmsNothing) {
  Processes job(3);
  for (const int rank : {0, 1, 2}) {
    job.signal(rank, SIGSTOP);
    std::this_thread::sleep_for(kBriefly);
    job.signal(rank, SIGCONT);
    std::this_thread::sleep_for(kAwake);
  }
  job.let_leave();
  for (const int rank : {0, 1, 2}) EXPECT_EQ(job.end_of(rank), kUnharmed) << rank;
}

TEST(Stopped, ALongStopOfAllRanksHarmsNothing) {
  Processes job(3);
  for (const int rank : {2, 1, 0}) job.signal(rank, SIGSTOP);
  std::this_thread::sleep_for(kTwiceTheLimit);
  for (const int rank : {0, 1, 2}) job.signal(rank, SIGCONT);
  std::this_thread::sleep_for(kAwake);
  job.let_leave();
  for (const int rank : {0, 1, 2}) EXPECT_EQ(job.end_of(rank), kUnharmed) << rank;
}

TEST(Stopped, ARankThatStaysStoppedIsLost) {
  Processes job(3);
  job.signal(1, SIGSTOP);
  EXPECT_EQ(job.end_of(0), kLost + 1);
  EXPECT_EQ(job.end_of(2), kNotified + 1);
  job.signal(1, SIGCONT);
  EXPECT_EQ(job.end_of(1), kNotified + 1);  // its socket contains the report
}

TEST(Stopped, Rank0ThatStaysStoppedIsLost) {
  Processes job(3);
  job.signal(0, SIGSTOP);
  EXPECT_EQ(job.end_of(1), kLost + 0);
  EXPECT_EQ(job.end_of(2), kLost + 0);
}

TEST(Stopped, AKilledRankIsLost) {
  for (const int victim : {0, 2}) {
    Processes job(3);
    job.signal(victim, SIGKILL);
    EXPECT_EQ(job.end_of(victim), -SIGKILL);
    if (victim == 0) {
      EXPECT_EQ(job.end_of(1), kLost + 0);
      EXPECT_EQ(job.end_of(2), kLost + 0);
    } else {
      EXPECT_EQ(job.end_of(0), kLost + 2);
      EXPECT_EQ(job.end_of(1), kNotified + 2);
    }
  }
}

}  // namespace
}  // namespace gantry::testing
