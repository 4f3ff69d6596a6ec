// How a rank waits for an operation, and what it says when it has waited too long.
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <sched.h>

#include "gantry/comm/control/timers.h"
#include "gantry/comm/mpi/mpi_engine.h"
#include "gantry/comm/mpi/mpi_environment.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSearchSeconds = 0.1;

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
    waited_ = std::chrono::duration<double>(Clock::now() - begin_).count();
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
  const Clock::time_point begin_ = Clock::now();
  double waited_ = 0, quiet_from_ = 0;
  std::uint64_t moves_ = 0;
  int rounds_ = 0;
  bool moved_ = false, asleep_ = false;
  std::chrono::microseconds sleep_ = kShortestSleep;
};

}  // namespace

std::vector<int> MpiEngine::missing_peers(const MpiOperation& operation) {
  std::vector<int> peers;
  for (const Pending& pending : pending_)
    if (pending.operation == &operation && pending.incoming) peers.push_back(pending.peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

std::string MpiEngine::deadline_text(MpiOperation& operation) {
  return fmt::format("{} waited {} s for {}", describe_rank(rank_), timeout_seconds_, awaited(operation));
}

std::string MpiEngine::awaited(MpiOperation& operation) { return operation.describe_pending(missing_peers(operation)); }

void MpiEngine::notice_slow(MpiOperation& operation, double waited) {
  std::string pending;
  {
    const std::lock_guard lock(mutex_);
    pending = awaited(operation);
  }
  notices_.say(fmt::format("{} has waited {:.3g} s for {}", describe_rank(rank_), waited, pending));
}

bool MpiEngine::wait_until(const std::function<bool()>& ready, MpiOperation* operation) {
  double next_search = kSearchSeconds, next_ended = kSearchSeconds, notice = notices_.due_seconds();
  bool rung = false;  // no message is waited for
  if (operation) {
    const std::lock_guard lock(mutex_);
    rung = operation->polled() && operation->outstanding_ == 0;
  }
  Backoff backoff(crowded_, rung);
  while (true) {
    progress();
    if (ready()) return true;
    throw_if_failed();
    const auto longest = backoff.pause(moves_.load(std::memory_order_relaxed));
    if (longest.count() > 0) sleep(ready, longest);
    if (backoff.waited() >= timeout_seconds_) return false;
    if (operation && backoff.waited() >= next_search) {
      next_search = 2 * backoff.waited();
      search_mismatch(*operation);
    }
    if (operation && backoff.waited() >= next_ended) {
      next_ended = backoff.waited() + kSearchSeconds;
      search_ended(*operation);
    }
    if (operation && backoff.waited() >= notice) {
      notice = timeout_seconds_;
      notice_slow(*operation, backoff.waited());
    }
  }
}

// Messages from other hosts ring no bell, so it is never for long.
void MpiEngine::sleep(const std::function<bool()>& ready, std::chrono::microseconds longest) {
  const std::uint64_t moves = moves_.load(std::memory_order_relaxed);
  const std::uint32_t rings = doorbells_->announce();
  progress(true);
  if (!ready() && !failed() && moves == moves_.load(std::memory_order_relaxed)) doorbells_->sleep(rings, longest);
  doorbells_->leave();
}

void MpiEngine::search_mismatch(MpiOperation& operation) {
  const std::lock_guard lock(mutex_);
  const std::string mismatch = operation.find_mismatch(missing_peers(operation));
  if (mismatch.empty()) return;
  fail_locked(PeerError::kExitCode, mismatch);
  throw PeerError(cause_);
}

int MpiEngine::find_ended_locked(const std::vector<int>& ranks) const {
  for (const int rank : ranks)
    if (const auto ended = ended_at_.find(rank);
        ended != ended_at_.end() &&
        Clock::now() - ended->second >= std::chrono::duration<double>(control::kLastMessagesSeconds))
      return rank;
  return -1;
}

int MpiEngine::find_ended(const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  return find_ended_locked(ranks);
}

void MpiEngine::search_ended(MpiOperation& operation) {
  const std::lock_guard lock(mutex_);
  search_ended_locked(operation);
}

void MpiEngine::search_ended_locked(MpiOperation& operation) {
  if (ended_at_.empty() || operation.finished_.load(std::memory_order_acquire)) return;
  const int ended = find_ended_locked(operation.awaited_ranks(missing_peers(operation)));
  if (ended < 0) return;
  fail_locked(PeerError::kExitCode, ended_early_text(describe_rank(rank_), awaited(operation), describe_rank(ended)));
  throw PeerError(cause_);
}

void MpiEngine::wait(MpiOperation& operation) {
  if (wait_until([&] { return operation.finished_.load(std::memory_order_acquire); }, &operation)) return;
  const std::lock_guard lock(mutex_);
  fail_locked(PeerError::kExitCode, deadline_text(operation));
  throw PeerError(cause_);
}

void MpiEngine::close() {
  if (closed_) return;
  throw_if_failed();
  const bool drained = wait_until(
      [&] {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        if (!lock.owns_lock()) return false;
        if (!live_.empty()) search_ended_locked(*live_.front());
        return live_.empty();
      },
      nullptr);
  const std::lock_guard lock(mutex_);
  if (!drained) {
    fail_locked(PeerError::kExitCode, deadline_text(*live_.front()));
    throw PeerError(cause_);
  }
  closed_ = true;
  MPI_Comm_free(&control_);
}

bool MpiEngine::may_free() const { return !failed() && mpi_is_running(); }

void MpiOperation::restart() {
  outstanding_ = 0;
  failure_ = nullptr;
  completed_ = false;
  finished_.store(false, std::memory_order_release);
}

bool MpiOperation::done() {
  if (!finished_.load(std::memory_order_acquire)) engine_->progress(true);
  if (finished_.load(std::memory_order_acquire)) return complete();
  engine_->throw_if_failed();
  return false;
}

void MpiOperation::wait() {
  if (!finished_.load(std::memory_order_acquire)) engine_->wait(*this);
  complete();
}

bool MpiOperation::complete() {
  if (failure_) std::rethrow_exception(failure_);
  if (!completed_) {
    completed_ = true;
    finish();
  }
  return true;
}

}  // namespace gantry
