#include "gantry/comm/processes/process_operation.h"

#include <algorithm>
#include <functional>
#include <mutex>

#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr double kSearchSeconds = 0.1;

}  // namespace

void ProcessOperation::restart() {
  outstanding_ = 0;
  failure_ = nullptr;
  completed_ = false;
  finished_.store(false, std::memory_order_release);
}

std::vector<int> ProcessOperation::missing() const {
  const std::lock_guard lock(engine_->mutex_);
  return engine_->missing_peers(*this);
}

bool ProcessOperation::done() {
  if (!finished()) engine_->progress(true);
  if (finished()) return complete();
  engine_->failures().throw_if_failed();
  return false;
}

void ProcessOperation::wait() {
  if (!finished()) {
    bool rung = false;  // no message is awaited
    {
      const std::lock_guard lock(engine_->mutex_);
      rung = polled() && outstanding_ == 0;
    }
    double next_mismatch = kSearchSeconds, next_ended = kSearchSeconds, notice = engine_->notices_.due_seconds();
    const auto look = [&](double waited) {
      if (waited < std::min({next_mismatch, next_ended, notice})) return;
      const std::lock_guard lock(engine_->mutex_);
      if (waited >= next_mismatch) {
        next_mismatch = 2 * waited;
        search_mismatch();
      }
      if (waited >= next_ended) {
        next_ended = waited + kSearchSeconds;
        search_ended();
      }
      if (waited >= notice) {
        notice = engine_->timeout_seconds();
        engine_->notices_.say(engine_->describe_rank(engine_->rank()), waited, awaited());
      }
    };
    if (!engine_->wait_until([this] { return finished(); }, rung, std::ref(look))) {
      const std::lock_guard lock(engine_->mutex_);
      end_late();
    }
  }
  complete();
}

bool ProcessOperation::complete() {
  if (failure_) std::rethrow_exception(failure_);
  if (!completed_) {
    completed_ = true;
    finish();
  }
  return true;
}

void ProcessOperation::search_mismatch() {
  if (const std::string mismatch = find_mismatch(engine_->missing_peers(*this)); !mismatch.empty()) end_job(mismatch);
}

void ProcessOperation::search_ended() {
  if (!engine_->failures().some_ended() || finished()) return;
  const int ended = engine_->failures().find_ended(awaited_ranks(engine_->missing_peers(*this)));
  if (ended >= 0)
    end_job(ended_early_text(engine_->describe_rank(engine_->rank()), awaited(), engine_->describe_rank(ended)));
}

void ProcessOperation::end_late() {
  end_job(deadline_text(engine_->describe_rank(engine_->rank()), engine_->timeout_seconds(), awaited()));
}

void ProcessOperation::end_job(const std::string& cause) {
  engine_->fail_locked(PeerError::kExitCode, cause);
  engine_->failures().throw_if_failed();
}

}  // namespace gantry
