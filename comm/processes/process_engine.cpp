#include "gantry/comm/processes/process_engine.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "gantry/comm/processes/process_end.h"
#include "gantry/comm/processes/process_operation.h"
#include "gantry/core/error.h"
#include "gantry/tensors/exceptions.h"

namespace gantry {
namespace {

// The head of a message must not be split.
constexpr std::int64_t kLeastChunkBytes = 4096;

// Reserved requests. The number in flight depends on timing. Above this number, a request may allocate
// memory.
constexpr std::size_t kUsualRequests = 1024;

// While operations wait for shared memory, only every kLooksATest-th check tests messages too.
constexpr unsigned kLooksATest = 8;

}  // namespace

ProcessEngine::ProcessEngine(std::unique_ptr<Transport> transport, std::shared_ptr<KnownFailures> failures,
                             const WaitLimits& waits, std::function<std::string(int)> describe_rank,
                             ProcessLimits limits)
    : timeout_seconds_(waits.timeout_seconds),
      notices_(waits),
      describe_rank_(std::move(describe_rank)),
      limits_{std::max(limits.chunk_bytes, kLeastChunkBytes), limits.direct_bytes, limits.direct_ranks,
              limits.segment_bytes, limits.slot_bytes},
      transport_(std::move(transport)),
      failures_(std::move(failures)),
      hosts_(*transport_, describe_rank_(transport_->rank()), begin_text()),
      crowded_(hosts_.cores_of_rank() < 1 - 1e-6) {
  pending_.reserve(kUsualRequests);
  free_.reserve(kUsualRequests);
  completions_.reserve(kUsualRequests);
  live_.reserve(kUsualRequests);
  polled_.reserve(kUsualRequests);
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  everyone_ = transport_->open_channel(all, 0, begin_text());
}

std::string ProcessEngine::begin_text() const {
  return fmt::format("{} waited {} s for all ranks to begin", describe_rank(rank()), timeout_seconds_);
}

int ProcessEngine::add(const Pending& pending) {
  ++pending.operation->outstanding_;
  if (pending.open) ++*pending.open;
  if (free_.empty()) {
    pending_.push_back(pending);
    return static_cast<int>(pending_.size()) - 1;
  }
  const int number = free_.back();
  free_.pop_back();
  pending_[static_cast<std::size_t>(number)] = pending;
  return number;
}

void ProcessEngine::send(ProcessOperation& operation, const void* data, std::int64_t bytes, int peer, int tag,
                         Transport::Channel& channel, int* open) {
  std::int64_t sent = 0;
  do {
    const std::int64_t now = std::min(bytes - sent, limits_.chunk_bytes);
    const int number = add({&operation, peer, -1, false, open});
    transport_->send(channel, peer, tag, static_cast<const char*>(data) + sent, now, number);
    sent += now;
  } while (sent < bytes);
  hosts_.ring_all();  // the peer may be on this host
}

void ProcessEngine::receive(ProcessOperation& operation, void* data, std::int64_t bytes, int peer, int tag,
                            Transport::Channel& channel, bool exact, int* open) {
  std::int64_t received = 0;
  do {
    const std::int64_t now = std::min(bytes - received, limits_.chunk_bytes);
    const int number = add({&operation, peer, exact ? now : -1, true, open});
    transport_->receive(channel, peer, tag, static_cast<char*>(data) + received, now, number);
    received += now;
  } while (received < bytes);
}

void ProcessEngine::post(const std::shared_ptr<ProcessOperation>& operation) {
  failures_->throw_if_failed();
  const std::lock_guard lock(mutex_);
  live_.push_back(operation);
  const bool polled = operation->polled(), alone = polled_.empty();
  if (polled) polled_.push_back(operation.get());
  advance(*operation);
  // Earlier operations advance too, because there may be a long computation between two posts.
  if (!polled || !alone) progress_locked(true);
}

void ProcessEngine::progress(bool thorough) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) progress_locked(thorough);
}

void ProcessEngine::progress_locked(bool thorough) {
  // After a failure, shared memory may contain unfinished data of peers.
  if (!failures_->failed()) {
    for (std::size_t i = 0; i < polled_.size();) {
      ProcessOperation* const operation = polled_[i];
      advance(*operation);
      if (i < polled_.size() && polled_[i] == operation) ++i;
    }
  }
  const unsigned every = polled_.empty() ? 1 : kLooksATest;
  if (thorough || ++looks_ % every == 0) test_requests();
}

void ProcessEngine::test_requests() {
  if (free_.size() < pending_.size()) test_transport();
}

void ProcessEngine::test_transport() {
  completions_.clear();
  transport_->test_some(completions_);
  if (completions_.empty()) return;
  note_move();
  // Handling a completion may post more requests, with the numbers that are freed here.
  for (const Transport::Completion& end : completions_) {
    const Pending pending = std::exchange(pending_[static_cast<std::size_t>(end.request)], Pending{});
    free_.push_back(end.request);
    completed(pending, end);
  }
}

void ProcessEngine::completed(const Pending& pending, const Transport::Completion& end) {
  ProcessOperation& operation = *pending.operation;
  --operation.outstanding_;
  if (pending.open) --*pending.open;
  if (operation.finished_.load(std::memory_order_relaxed)) return;
  std::string cause;
  if (end.too_long || (end.trouble.empty() && pending.bytes >= 0 && end.bytes != pending.bytes))
    cause = operation.describe_mismatch(pending.peer, pending.bytes, end.too_long ? -1 : end.bytes);
  else if (!end.trouble.empty())
    cause = end.trouble + ", while this rank waited for " + operation.describe_wait(pending.peer);
  if (!cause.empty()) {
    fail_locked(PeerError::kExitCode, describe_rank(rank()) + ": " + cause);
    operation.failure_ = std::make_exception_ptr(PeerError(failures_->first().cause()));
    operation.finished_.store(true, std::memory_order_release);
  } else if (operation.outstanding_ == 0 && !operation.polled()) {
    advance(operation);
  }
}

void ProcessEngine::advance(ProcessOperation& operation) {
  bool finished = false;
  try {
    do finished = operation.advance();
    while (!finished && operation.outstanding_ == 0 && !operation.polled());
  } catch (...) {  // any error: the completions of other operations must still be handled
    operation.failure_ = std::current_exception();
    const Failure failure = describe_exception(operation.failure_);
    fail_locked(failure.exit_code, failure.line);
    finished = true;
  }
  if (!finished) return;
  if (operation.polled()) polled_.erase(std::find(polled_.begin(), polled_.end(), &operation));
  // A failed operation is kept, because the transport may still write to its memory.
  if (!operation.failure_) {
    auto keep = std::find_if(live_.begin(), live_.end(), [&](const auto& one) { return one.get() == &operation; });
    const std::shared_ptr<ProcessOperation> alive = std::move(*keep);
    live_.erase(keep);
    operation.finished_.store(true, std::memory_order_release);
    return;
  }
  operation.finished_.store(true, std::memory_order_release);
}

std::vector<int> ProcessEngine::lost_ranks() {
  const std::lock_guard lock(mutex_);
  test_transport();
  return transport_->lost_ranks();
}

void ProcessEngine::fail(int exit_code, const std::string& cause) {
  const std::lock_guard lock(mutex_);
  fail_locked(exit_code, cause);
}

void ProcessEngine::fail_locked(int exit_code, const std::string& cause) {
  if (!failures_->first().set(exit_code, cause)) return;
  tell_failure(exit_code, cause);
  hosts_.ring_all();
}

std::vector<int> ProcessEngine::missing_peers(const ProcessOperation& operation) const {
  std::vector<int> peers;
  for (const Pending& pending : pending_)
    if (pending.operation == &operation && pending.incoming) peers.push_back(pending.peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

bool ProcessEngine::wait_until(const std::function<bool()>& ready, bool rung, const std::function<void(double)>& look) {
  Backoff backoff(crowded_, rung);
  while (true) {
    progress();
    if (ready()) return true;
    failures_->throw_if_failed();
    const auto longest = backoff.pause(moves_.load(std::memory_order_relaxed));
    if (longest.count() > 0) sleep(ready, longest);
    if (backoff.waited() >= timeout_seconds_) return false;
    look(backoff.waited());
  }
}

// Messages from other hosts ring no doorbell, so the sleep is always short.
void ProcessEngine::sleep(const std::function<bool()>& ready, std::chrono::microseconds longest) {
  const std::uint64_t moves = moves_.load(std::memory_order_relaxed);
  const std::uint32_t rings = hosts_.doorbells().announce();
  progress(true);
  if (!ready() && !failures_->failed() && moves == moves_.load(std::memory_order_relaxed))
    hosts_.doorbells().sleep(rings, longest);
  hosts_.doorbells().leave();
}

void ProcessEngine::close() {
  if (closed_) return;
  failures_->throw_if_failed();
  const bool drained = wait_until(
      [&] {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        if (!lock.owns_lock()) return false;
        if (!live_.empty()) live_.front()->search_ended();
        return live_.empty();
      },
      /*rung=*/false, [](double) {});
  const std::lock_guard lock(mutex_);
  if (!drained) live_.front()->end_late();
  closed_ = true;
  everyone_.reset();
}

bool ProcessEngine::abandon() {
  std::vector<std::shared_ptr<ProcessOperation>> dropped;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  if (!transport_->abandon()) return false;
  dropped.swap(live_);
  polled_.clear();
  pending_.clear();
  free_.clear();
  everyone_.reset();
  closed_ = true;
  return true;
}

}  // namespace gantry
