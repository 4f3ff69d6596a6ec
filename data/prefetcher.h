// Prepares batches in advance, on a thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "gantry/data/loaded_batch.h"

namespace gantry {

class Prefetcher {
 public:
  // `make` returns the next batch. It is called on the prefetcher's thread only. At most `depth` batches
  // wait. The thread's allocations are counted for the thread that created the prefetcher (MemoryMeter).
  Prefetcher(std::function<LoadedBatch()> make, int depth);
  // Ends the thread after the batch that it is making.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Returns the next batch, or rethrows the exception of `make`. Do not call it again after an exception.
  LoadedBatch next();

 private:
  struct Prepared {
    LoadedBatch batch;
    std::exception_ptr failure;
  };
  void run();

  std::function<LoadedBatch()> make_;
  std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Prepared> prepared_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace gantry
