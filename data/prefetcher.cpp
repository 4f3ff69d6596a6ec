#include "gantry/data/prefetcher.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>

namespace gantry {

Prefetcher::Prefetcher(std::function<LoadedBatch()> make, int depth)
    : make_(std::move(make)), depth_(static_cast<std::size_t>(depth)) {
  thread_ = std::thread([this, state = at::ThreadLocalState()] {
    const at::ThreadLocalStateGuard guard(state);
    const at::DisableRecordFunctionGuard unseen;  // a recording ends when its ranks have met, not this thread
    run();
  });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetcher::run() {
  for (bool failed = false; !failed;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || prepared_.size() < depth_; });
      if (stopping_) return;
    }
    Prepared made;
    try {
      made.batch = make_();
    } catch (...) {
      made.failure = std::current_exception();
      failed = true;
    }
    {
      const std::lock_guard lock(mutex_);
      prepared_.push_back(std::move(made));
    }
    changed_.notify_all();
  }
}

LoadedBatch Prefetcher::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !prepared_.empty(); });
  Prepared made = std::move(prepared_.front());
  prepared_.pop_front();
  lock.unlock();
  changed_.notify_all();
  if (made.failure) std::rethrow_exception(made.failure);
  return std::move(made.batch);
}

}  // namespace gantry
