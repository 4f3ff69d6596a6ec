#include "gantry/comm/mpi/mpi_engine.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <sched.h>
#include <sstream>
#include <thread>

#include "gantry/comm/mpi/mpi_environment.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

using Clock = std::chrono::steady_clock;

// The head of a message is not cut.
constexpr std::int64_t kLeastChunkBytes = 4096;

// Polls while an answer is likely to be near, giving way to other ranks where they share cores; then says for how long
// to sleep, ever longer, since the core may be of use to someone. Waking costs up to some tenths of a millisecond.
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

// Messages have their turn at one look of so many while shared memory is waited for.
constexpr unsigned kLooksATest = 8;
constexpr unsigned kLooksAnIdleTest = 64;  // nothing but another rank's failure could come

// "0,0,1": hosts that the ranks are to take themselves to be on, beside their own; for tests on one machine.
int pretended_host(int rank) {
  const char* text = std::getenv("GANTRY_PRETEND_HOSTS");
  if (!text) return 0;
  std::istringstream hosts(text);
  std::string host;
  for (int place = 0; place <= rank; ++place)
    if (!std::getline(hosts, host, ',')) return 0;
  return std::atoi(host.c_str());
}

}  // namespace

struct MpiEngine::Notice {
  int rank = 0;
  int exit_code = 1;
  char cause[2040] = "";
};

MpiEngine::MpiEngine(double timeout_seconds, std::function<std::string(int)> describe_rank, MpiLimits limits)
    : timeout_seconds_(timeout_seconds),
      describe_rank_(std::move(describe_rank)),
      limits_{std::max(limits.chunk_bytes, kLeastChunkBytes), limits.direct_bytes, limits.segment_bytes,
              limits.slot_bytes},
      notice_(std::make_unique<Notice>()) {}

std::shared_ptr<MpiEngine> MpiEngine::start(double timeout_seconds, std::function<std::string(int)> describe_rank,
                                            MpiLimits limits) {
  mpi_initialise();
  std::shared_ptr<MpiEngine> engine(new MpiEngine(timeout_seconds, std::move(describe_rank), limits));
  engine->rank_ = mpi_world_rank();
  engine->size_ = mpi_world_size();
  engine->crowded_ = mpi_ranks_on_host() > static_cast<int>(std::thread::hardware_concurrency());
  const Watchdog watchdog(timeout_seconds, fmt::format("{} waited {} s for all ranks to begin",
                                                       engine->describe_rank(engine->rank_), timeout_seconds));
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &engine->control_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(engine->control_, MPI_ERRORS_RETURN);
  engine->find_hosts();
  engine->listen();
  return engine;
}

void MpiEngine::find_hosts() {
  MPI_Comm machine = MPI_COMM_NULL, host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(control_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine), "MPI_Comm_split_type");
  check_mpi(MPI_Comm_split(machine, pretended_host(rank_), rank_, &host), "MPI_Comm_split");
  int place = 0, size = 1, leader = rank_;
  MPI_Comm_rank(host, &place);
  MPI_Comm_size(host, &size);
  check_mpi(MPI_Bcast(&leader, 1, MPI_INT, 0, host), "MPI_Bcast");
  auto memory = HostMemory::create(host, Doorbells::bytes(size));
  if (!memory) {
    // Alone, then: its ranks share no memory.
    leader = rank_;
    place = 0;
    size = 1;
    memory = HostMemory::own(Doorbells::bytes(size));
  }
  doorbells_ = std::make_unique<Doorbells>(std::move(memory), place);
  hosts_.resize(size_);
  places_.resize(size_);
  check_mpi(MPI_Allgather(&leader, 1, MPI_INT, hosts_.data(), 1, MPI_INT, control_), "MPI_Allgather");
  check_mpi(MPI_Allgather(&place, 1, MPI_INT, places_.data(), 1, MPI_INT, control_), "MPI_Allgather");
  neighbours_.resize(size);
  std::iota(neighbours_.begin(), neighbours_.end(), 0);
  MPI_Comm_free(&host);
  MPI_Comm_free(&machine);
}

void MpiEngine::listen() {
  check_mpi(MPI_Irecv(notice_.get(), sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, 0, control_, &notice_request_),
            "MPI_Irecv");
  add(notice_request_, {nullptr, -1, -1, true});
}

void MpiEngine::heard() {
  hear_locked({notice_->rank, notice_->exit_code, notice_->cause});
  listen();
}

void MpiEngine::hear(const RemoteFailure& failure) {
  const std::lock_guard lock(mutex_);
  hear_locked(failure);
}

void MpiEngine::hear_locked(const RemoteFailure& failure) {
  if (!remote_failure_ || failure.rank < remote_failure_->rank) remote_failure_ = failure;
  if (failed()) return;
  cause_ = failure.cause;
  failed_.store(true, std::memory_order_release);
}

void MpiEngine::add(MPI_Request request, const Pending& pending) {
  requests_.push_back(request);
  pending_.push_back(pending);
  if (pending.operation) ++pending.operation->outstanding_;
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
  doorbells_->ring(neighbours_);  // it may be one of them
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

void MpiEngine::post(std::shared_ptr<MpiOperation> operation) {
  throw_if_failed();
  const std::lock_guard lock(mutex_);
  live_.push_back(operation);
  const bool polled = operation->polled();
  if (polled) polled_.push_back(operation.get());
  advance(*operation);
  if (!polled) progress_locked(true);
}

void MpiEngine::progress(bool thorough) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) progress_locked(thorough);
}

void MpiEngine::progress_locked(bool thorough) {
  // After a failure peers may leave what they had begun in shared memory.
  if (!failed()) {
    for (std::size_t i = 0; i < polled_.size();) {
      MpiOperation* const operation = polled_[i];
      advance(*operation);
      if (i < polled_.size() && polled_[i] == operation) ++i;
    }
  }
  const unsigned every = polled_.empty() ? 1 : requests_.size() > 1 ? kLooksATest : kLooksAnIdleTest;
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
  if (!pending.operation) {
    if (code == MPI_SUCCESS) heard();
    return;
  }
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
    operation.failure_ = std::make_exception_ptr(PeerError(cause_));
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
  } catch (const Error& error) {
    operation.failure_ = std::current_exception();
    fail_locked(error.exit_code(), error.what());
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
  if (failed()) return;
  cause_ = cause;
  failed_.store(true, std::memory_order_release);
  tell_failure(exit_code, cause);
  if (closed_ || !mpi_is_running()) return;
  auto* notice = new Notice;  // never freed: nobody waits for its arrival
  notice->rank = rank_;
  notice->exit_code = exit_code;
  std::strncpy(notice->cause, cause.c_str(), sizeof(notice->cause) - 1);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(notice, sizeof(Notice), MPI_BYTE, peer, 0, control_, &request) == MPI_SUCCESS)
      MPI_Request_free(&request);
  }
  doorbells_->ring(neighbours_);
}

void MpiEngine::throw_if_failed() {
  if (failed()) throw PeerError(cause());
}

std::string MpiEngine::cause() {
  const std::lock_guard lock(mutex_);
  return cause_;
}

std::optional<RemoteFailure> MpiEngine::remote_failure() {
  progress(true);
  const std::lock_guard lock(mutex_);
  return remote_failure_;
}

std::vector<int> MpiEngine::missing_peers(const MpiOperation& operation) {
  std::vector<int> peers;
  for (const Pending& pending : pending_)
    if (pending.operation == &operation && pending.incoming) peers.push_back(pending.peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

std::string MpiEngine::deadline_text(MpiOperation& operation) {
  return fmt::format("{} waited {} s for {}", describe_rank(rank_), timeout_seconds_,
                     operation.describe_pending(missing_peers(operation)));
}

bool MpiEngine::wait_until(const std::function<bool()>& ready, MpiOperation* operation) {
  double next_search = 0.1;
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
        return lock.owns_lock() && live_.empty();
      },
      nullptr);
  const std::lock_guard lock(mutex_);
  if (!drained) {
    fail_locked(PeerError::kExitCode, deadline_text(*live_.front()));
    throw PeerError(cause_);
  }
  closed_ = true;
  // The notice's request is the only one left.
  MPI_Cancel(&requests_[0]);
  MPI_Wait(&requests_[0], MPI_STATUS_IGNORE);
  requests_.clear();
  pending_.clear();
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
