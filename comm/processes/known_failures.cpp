#include "gantry/comm/processes/known_failures.h"

#include "gantry/comm/control/timers.h"

namespace gantry {

void KnownFailures::hear(const JobFailure& failure) {
  {
    const std::lock_guard lock(mutex_);
    known_ = failure;
  }
  if (first_.set(failure.exit_code, failure.cause)) elsewhere_.store(true, std::memory_order_release);
}

std::optional<JobFailure> KnownFailures::known() const {
  const std::lock_guard lock(mutex_);
  return known_;
}

void KnownFailures::note_ended(const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  for (const int rank : ranks) ended_at_.emplace(rank, std::chrono::steady_clock::now());
}

bool KnownFailures::some_ended() const {
  const std::lock_guard lock(mutex_);
  return !ended_at_.empty();
}

int KnownFailures::find_ended(const std::vector<int>& ranks) const {
  const std::lock_guard lock(mutex_);
  for (const int rank : ranks)
    if (const auto ended = ended_at_.find(rank);
        ended != ended_at_.end() && std::chrono::steady_clock::now() - ended->second >=
                                        std::chrono::duration<double>(control::kLastMessagesSeconds))
      return rank;
  return -1;
}

}  // namespace gantry
