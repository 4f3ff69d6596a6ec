#include "gantry/comm/local/local_job.h"

#include "gantry/comm/local/local_group_state.h"
#include "gantry/core/error.h"
#include "gantry/core/usable_cores.h"

namespace gantry {

LocalJob::LocalJob(int ranks, const WaitLimits& limits, std::function<std::string(int)> describe_rank)
    : ranks_(ranks),
      timeout_seconds_(limits.timeout_seconds),
      notices_(limits),
      describe_rank_(std::move(describe_rank)),
      crowded_(ranks > usable_cores()),
      ended_(static_cast<std::size_t>(ranks)) {}

void LocalJob::fail(int exit_code, const std::string& cause) {
  std::unique_lock lock(mutex_);
  if (failed_.load(std::memory_order_relaxed)) return;
  cause_ = cause;
  exit_code_ = exit_code;
  failed_.store(true, std::memory_order_release);
  wake_all(std::move(lock));
}

void LocalJob::note_ended(int rank) {
  ended_[rank].store(true, std::memory_order_release);
  some_ended_.store(true, std::memory_order_release);
  wake_all(std::unique_lock(mutex_));
}

void LocalJob::wake_all(std::unique_lock<std::mutex> lock) {
  std::vector<std::shared_ptr<LocalGroupState>> groups;
  for (const auto& [key, group] : groups_) groups.push_back(group);
  lock.unlock();
  for (const auto& group : groups) group->wake_all();
}

void LocalJob::throw_if_failed() const {
  if (failed()) throw PeerError(cause());
}

std::string LocalJob::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

int LocalJob::exit_code() const {
  const std::lock_guard lock(mutex_);
  return exit_code_;
}

std::shared_ptr<LocalGroupState> LocalJob::group_state(const std::string& label, const std::vector<int>& ranks, int n) {
  const std::lock_guard lock(mutex_);
  auto& state = groups_[{ranks, n}];
  if (!state) state = std::make_shared<LocalGroupState>(*this, label, ranks);
  return state;
}

}  // namespace gantry
