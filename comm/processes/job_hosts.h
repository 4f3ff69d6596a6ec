// Which ranks of the job are on which host, and how those of one wake each other and sleep.
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

// A word each member of a host may sleep at. Shared between processes and threads: all of it is atomic.
//
// A sleeper announces itself, looks once more for what it waits for, and sleeps; who changes something that others may
// wait for rings them afterwards. Both sides have a full fence between, so one of them sees the other.
class Doorbells {
 public:
  static std::size_t bytes(int members) { return members * sizeof(Bell); }
  Doorbells(std::shared_ptr<HostMemory> memory, int mine)
      : memory_(std::move(memory)), bells_(reinterpret_cast<Bell*>(memory_->data())), mine_(mine) {}

  void ring(const std::vector<int>& members);  // this rank is left out
  // Before the last look; what it returns goes to sleep(). Every announce() is followed by leave().
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
  // Collective over the job. `name` is this rank's, for a line on stderr where a host's ranks can share no memory;
  // `waited` is said where a rank does not come.
  JobHosts(Transport& transport, const std::string& name, const std::string& waited);

  // By world rank: a number for its host, and its place among the ranks of that host.
  int host_of(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
  int place_of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  // All ranks run on this machine.
  bool one_machine() const { return one_machine_; }
  // This rank's share of its machine's cores: the ranks may be bound to cores of their own, or share them and a quota.
  double cores_of_rank() const { return cores_of_rank_; }
  // Wakes those of this host's ranks that sleep, by place.
  void ring(const std::vector<int>& places) { doorbells_->ring(places); }
  void ring_all() { doorbells_->ring(neighbours_); }
  Doorbells& doorbells() { return *doorbells_; }

 private:
  void share_doorbells(Transport& transport, const std::string& name, const std::string& waited);

  std::vector<int> hosts_, places_;  // by world rank
  std::vector<int> neighbours_;      // places of all ranks of this host
  bool one_machine_ = true;
  double cores_of_rank_ = 1;
  std::unique_ptr<Doorbells> doorbells_;
};

// A line on stderr, the first time in a process: why ranks of this host share no memory. `name`: this rank's.
void warn_unshared(const std::string& name, const std::string& trouble);

// Polls while an answer is likely to be near, which it is after every move, giving way to other ranks where they share
// cores; then says for how long to sleep, ever longer, since the core may be of use to someone. Waking costs up to some
// tenths of a millisecond.
class Backoff {
 public:
  // `rung`: what is waited for rings this rank's doorbell, so that it may sleep early.
  Backoff(bool crowded, bool rung)
      : crowded_(crowded),
        awake_seconds_(!rung     ? kAwakeSeconds
                       : crowded ? kAwakeRungCrowded
                                 : kAwakeRung) {}
  double waited() const { return waited_; }  // seconds, as last looked
  // Zero: look again at once. `moves`: how often anything has moved so far.
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
