// The host of each rank of the job, and the means by which the ranks of a host wake each other and sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <sched.h>
#include <string>
#include <vector>

#include "gantry/comm/processes/host_memory.h"
#include "gantry/comm/processes/transport.h"

namespace gantry {

// One word per member of a host, at which the member can sleep. Shared between processes and threads: all
// data are atomic.
//
// A sleeper announces itself, checks its condition once more, and sleeps. A thread that changes something for
// which others may wait rings them afterwards. There is a full fence between the two steps on both sides, so
// at least one side sees the other.
class Doorbells {
 public:
  static std::size_t bytes(int members) { return members * sizeof(Bell); }
  Doorbells(std::shared_ptr<HostMemory> memory, int mine)
      : memory_(std::move(memory)), bells_(reinterpret_cast<Bell*>(memory_->data())), mine_(mine) {}

  void ring(const std::vector<int>& members);  // skips this rank
  // Call announce() before the last check, and pass its result to sleep(). Every announce() is followed by
  // leave().
  std::uint32_t announce();
  void sleep(std::uint32_t rings, std::chrono::microseconds longest);
  void leave();

 private:
  struct alignas(64) Bell {
    std::atomic<std::uint32_t> rings, sleepers;
  };
  std::shared_ptr<HostMemory> memory_;
  Bell* bells_;
  int mine_;
};

class JobHosts {
 public:
  // Collective over the job. `name`: the name of this rank, for a warning if the ranks of a host cannot share
  // memory. `waited`: the error if a rank does not arrive.
  JobHosts(Transport& transport, const std::string& name, const std::string& waited);

  // By world rank: a number that identifies its host, and its place among the ranks of that host.
  int host_of(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
  int place_of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  // Returns true if all ranks run on this machine.
  bool one_machine() const { return one_machine_; }
  // Returns this rank's share of its machine's cores. Ranks may be bound to separate cores, or share cores
  // and a quota.
  double cores_of_rank() const { return cores_of_rank_; }
  // Wakes the sleeping ranks of this host with these places.
  void ring(const std::vector<int>& places) { doorbells_->ring(places); }
  void ring_all() { doorbells_->ring(neighbours_); }
  Doorbells& doorbells() { return *doorbells_; }

 private:
  void share_doorbells(Transport& transport, const std::string& name, const std::string& waited);

  std::vector<int> hosts_, places_;  // by world rank
  std::vector<int> neighbours_;      // places of all ranks on this host
  bool one_machine_ = true;
  double cores_of_rank_ = 1;
  std::unique_ptr<Doorbells> doorbells_;
};

// Prints a warning, once per process, with the reason why ranks of this host share no memory. `name`: the
// name of this rank.
void warn_unshared(const std::string& name, const std::string& trouble);

// Decides whether a waiting thread polls or sleeps. It polls while an answer is likely to be near, which it
// is after every move; if ranks share cores, it yields to them. Afterwards it sleeps, for increasing times,
// because the core may be of use to other threads. Waking up costs up to some tenths of a millisecond.
class Backoff {
 public:
  // `rung`: the awaited event rings this rank's doorbell, so the thread may sleep earlier.
  Backoff(bool crowded, bool rung)
      : crowded_(crowded),
        awake_seconds_(!rung     ? kAwakeSeconds
                       : crowded ? kAwakeRungCrowded
                                 : kAwakeRung) {}
  double waited() const { return waited_; }  // seconds at the last check
  // Returns the time to sleep; zero: check again at once. `moves`: number of moves so far.
  std::chrono::microseconds pause(std::uint64_t moves) {
    if (moves != moves_) {
      moves_ = moves;
      moved_ = true;
    }
    if (++rounds_ % kRoundsALook == 0 || asleep_) look();
    if (asleep_) {
      const auto now = sleep_;
      sleep_ = std::min(sleep_ * 2, kLongestSleep);
      return now;
    }
    if (crowded_ && rounds_ > kRoundsBeforeYielding) ::sched_yield();
    return {};
  }

 private:
  void look() {
    waited_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    if (moved_) {
      moved_ = false;
      quiet_from_ = waited_;
      sleep_ = kShortestSleep;
    }
    asleep_ = waited_ - quiet_from_ > awake_seconds_;
  }
  static constexpr int kRoundsBeforeYielding = 20, kRoundsALook = 32;
  static constexpr double kAwakeSeconds = 5e-3, kAwakeRung = 2e-3, kAwakeRungCrowded = 1e-4;
  static constexpr std::chrono::microseconds kShortestSleep{25}, kLongestSleep{400};
  const bool crowded_;
  const double awake_seconds_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double waited_ = 0, quiet_from_ = 0;
  std::uint64_t moves_ = 0;
  int rounds_ = 0;
  bool moved_ = false, asleep_ = false;
  std::chrono::microseconds sleep_ = kShortestSleep;
};

}  // namespace gantry
