// Batches that a thread prepares ahead.
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
  // `make` gives one batch after the other, on the thread alone; at most `depth` of them wait. What the thread
  // allocates counts for the thread that made the prefetcher (MemoryMeter).
  Prefetcher(std::function<LoadedBatch()> make, int depth);
  // Ends the thread after the batch that it is making.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch, or the exception that `make` threw in its place; not to be called again after one.
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
  std::thread thread_;  // last, so that it sees the others
};

}  // namespace gantry
