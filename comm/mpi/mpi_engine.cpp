#include "gantry/comm/mpi/mpi_engine.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/comm/mpi/mpi_environment.h"
#include "gantry/comm/mpi/mpi_operation.h"
#include "gantry/core/error.h"
#include "gantry/tensors/exceptions.h"

namespace gantry {
namespace {

// The head of a message is not split.
constexpr std::int64_t kLeastChunkBytes = 4096;

// Under way at once, which timing decides: more than that allocates when it first happens.
constexpr std::size_t kUsualRequests = 1024;

// Messages have their turn at one look of so many while shared memory is waited for.
constexpr unsigned kLooksATest = 8;

}  // namespace

MpiEngine::MpiEngine(const WaitLimits& waits, std::function<std::string(int)> describe_rank, MpiLimits limits)
    : timeout_seconds_(waits.timeout_seconds),
      notices_(waits),
      describe_rank_(std::move(describe_rank)),
      limits_{std::max(limits.chunk_bytes, kLeastChunkBytes), limits.direct_bytes, limits.segment_bytes,
              limits.slot_bytes} {
  requests_.reserve(kUsualRequests);
  pending_.reserve(kUsualRequests);
  indices_.reserve(kUsualRequests);
  statuses_.reserve(kUsualRequests);
  completions_.reserve(kUsualRequests);
  live_.reserve(kUsualRequests);
  polled_.reserve(kUsualRequests);
}

std::shared_ptr<MpiEngine> MpiEngine::start(const WaitLimits& waits, std::function<std::string(int)> describe_rank,
                                            MpiLimits limits) {
  mpi_initialise();
  std::shared_ptr<MpiEngine> engine(new MpiEngine(waits, std::move(describe_rank), limits));
  engine->rank_ = mpi_world_rank();
  engine->size_ = mpi_world_size();
  engine->crowded_ = mpi_cores_of_rank() < 1 - 1e-6;
  const Watchdog watchdog(waits.timeout_seconds,
                          fmt::format("{} waited {} s for all ranks to begin", engine->describe_rank(engine->rank_),
                                      waits.timeout_seconds));
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &engine->control_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(engine->control_, MPI_ERRORS_RETURN);
  engine->hosts_ = std::make_unique<MpiHosts>(engine->control_, engine->describe_rank(engine->rank_));
  return engine;
}

void MpiEngine::add(MPI_Request request, const Pending& pending) {
  requests_.push_back(request);
  pending_.push_back(pending);
  ++pending.operation->outstanding_;
  if (pending.open) ++*pending.open;
}

void MpiEngine::send(MpiOperation& operation, const void* data, std::int64_t bytes, int peer, int tag,
                     MPI_Comm communicator, int* open) {
  std::int64_t sent = 0;
  do {
    const std::int64_t now = std::min(bytes - sent, limits_.chunk_bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(static_cast<const char*>(data) + sent, static_cast<int>(now), MPI_BYTE, peer, tag, communicator,
                        &request),
              "MPI_Isend");
    add(request, {&operation, peer, -1, false, open});
    sent += now;
  } while (sent < bytes);
  hosts_->ring_all();  // it may be one of them
}

void MpiEngine::receive(MpiOperation& operation, void* data, std::int64_t bytes, int peer, int tag,
                        MPI_Comm communicator, bool exact, int* open) {
  std::int64_t received = 0;
  do {
    const std::int64_t now = std::min(bytes - received, limits_.chunk_bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(static_cast<char*>(data) + received, static_cast<int>(now), MPI_BYTE, peer, tag, communicator,
                        &request),
              "MPI_Irecv");
    add(request, {&operation, peer, exact ? now : -1, true, open});
    received += now;
  } while (received < bytes);
}

void MpiEngine::post(const std::shared_ptr<MpiOperation>& operation) {
  failures_.throw_if_failed();
  const std::lock_guard lock(mutex_);
  live_.push_back(operation);
  const bool polled = operation->polled(), alone = polled_.empty();
  if (polled) polled_.push_back(operation.get());
  advance(*operation);
  // What was posted before moves on, too: between two posts there may be a long computation.
  if (!polled || !alone) progress_locked(true);
}

void MpiEngine::progress(bool thorough) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) progress_locked(thorough);
}

void MpiEngine::progress_locked(bool thorough) {
  // After a failure peers may leave what they had begun in shared memory.
  if (!failures_.failed()) {
    for (std::size_t i = 0; i < polled_.size();) {
      MpiOperation* const operation = polled_[i];
      advance(*operation);
      if (i < polled_.size() && polled_[i] == operation) ++i;
    }
  }
  const unsigned every = polled_.empty() ? 1 : kLooksATest;
  if (thorough || ++looks_ % every == 0) test_requests();
}

void MpiEngine::test_requests() {
  const std::size_t count = requests_.size();
  if (count == 0) return;
  indices_.resize(count);
  statuses_.resize(count);
  int found = 0;
  const int code = MPI_Testsome(static_cast<int>(count), requests_.data(), &found, indices_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check_mpi(code, "MPI_Testsome");
  if (found <= 0) return;  // MPI_UNDEFINED is negative
  note_move();

  // Taken out first: handling one may post more.
  completions_.clear();
  for (int i = 0; i < found; ++i) {
    completions_.emplace_back(pending_[indices_[i]], statuses_[i]);
    if (code == MPI_SUCCESS) completions_.back().second.MPI_ERROR = MPI_SUCCESS;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    pending_[kept++] = pending_[i];
  }
  requests_.resize(kept);
  pending_.resize(kept);
  for (auto& [pending, status] : completions_) completed(pending, status.MPI_ERROR, status);
}

void MpiEngine::completed(const Pending& pending, int code, MPI_Status& status) {
  MpiOperation& operation = *pending.operation;
  --operation.outstanding_;
  if (pending.open) --*pending.open;
  if (operation.finished_.load(std::memory_order_relaxed)) return;
  int count = 0;
  if (pending.incoming) MPI_Get_count(&status, MPI_BYTE, &count);
  const bool too_long = code != MPI_SUCCESS && [&] {
    int error_class = 0;
    MPI_Error_class(code, &error_class);
    return error_class == MPI_ERR_TRUNCATE;
  }();
  std::string cause;
  if (too_long || (code == MPI_SUCCESS && pending.bytes >= 0 && count != pending.bytes))
    cause = operation.describe_mismatch(pending.peer, pending.bytes, too_long ? -1 : count);
  else if (code != MPI_SUCCESS)
    cause = operation.describe_pending({pending.peer}) + " failed: " + mpi_error_text(code);
  if (!cause.empty()) {
    fail_locked(PeerError::kExitCode, describe_rank(rank_) + ": " + cause);
    operation.failure_ = std::make_exception_ptr(PeerError(failures_.first().cause()));
    operation.finished_.store(true, std::memory_order_release);
  } else if (operation.outstanding_ == 0 && !operation.polled()) {
    advance(operation);
  }
}

void MpiEngine::advance(MpiOperation& operation) {
  bool finished = false;
  try {
    do finished = operation.advance();
    while (!finished && operation.outstanding_ == 0 && !operation.polled());
  } catch (...) {  // of any kind: other operations' completions are still to be handled
    operation.failure_ = std::current_exception();
    const Failure failure = describe_exception(operation.failure_);
    fail_locked(failure.exit_code, failure.line);
    finished = true;
  }
  if (!finished) return;
  if (operation.polled()) polled_.erase(std::find(polled_.begin(), polled_.end(), &operation));
  // A failed one stays: MPI may still write to its memory.
  if (!operation.failure_) {
    auto keep = std::find_if(live_.begin(), live_.end(), [&](const auto& one) { return one.get() == &operation; });
    const std::shared_ptr<MpiOperation> alive = std::move(*keep);
    live_.erase(keep);
    operation.finished_.store(true, std::memory_order_release);
    return;
  }
  operation.finished_.store(true, std::memory_order_release);
}

void MpiEngine::fail(int exit_code, const std::string& cause) {
  const std::lock_guard lock(mutex_);
  fail_locked(exit_code, cause);
}

void MpiEngine::fail_locked(int exit_code, const std::string& cause) {
  if (!failures_.first().set(exit_code, cause)) return;
  tell_failure(exit_code, cause);
  hosts_->ring_all();
}

std::vector<int> MpiEngine::missing_peers(const MpiOperation& operation) const {
  std::vector<int> peers;
  for (const Pending& pending : pending_)
    if (pending.operation == &operation && pending.incoming) peers.push_back(pending.peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

bool MpiEngine::wait_until(const std::function<bool()>& ready, bool rung, const std::function<void(double)>& look) {
  Backoff backoff(crowded_, rung);
  while (true) {
    progress();
    if (ready()) return true;
    failures_.throw_if_failed();
    const auto longest = backoff.pause(moves_.load(std::memory_order_relaxed));
    if (longest.count() > 0) sleep(ready, longest);
    if (backoff.waited() >= timeout_seconds_) return false;
    look(backoff.waited());
  }
}

// Messages from other hosts ring no bell, so it is never for long.
void MpiEngine::sleep(const std::function<bool()>& ready, std::chrono::microseconds longest) {
  const std::uint64_t moves = moves_.load(std::memory_order_relaxed);
  const std::uint32_t rings = hosts_->doorbells().announce();
  progress(true);
  if (!ready() && !failures_.failed() && moves == moves_.load(std::memory_order_relaxed))
    hosts_->doorbells().sleep(rings, longest);
  hosts_->doorbells().leave();
}

void MpiEngine::close() {
  if (closed_) return;
  failures_.throw_if_failed();
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
  MPI_Comm_free(&control_);
}

bool MpiEngine::may_free() const { return !failures_.failed() && mpi_is_running(); }

}  // namespace gantry
