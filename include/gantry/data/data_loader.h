// Batches for a training loop: written as for one device, partitioned over replicas by boosting.
#pragma once

#include <memory>

#include "gantry/data/loader.h"

namespace gantry {

class Prefetcher;

struct DataLoaderOptions {
  std::int64_t global_batch = 1;
  bool shuffle = true;
  std::uint64_t seed = 1;
  std::int64_t steps = 0;  // of one iteration; 0: an epoch's
  int prefetch = 0;        // batches that a thread prepares ahead of next()
  // An epoch ends with a shorter batch of what is left. False: batches run on over the end, all of one size.
  bool keep_last = false;
};

// for (Batch& batch : loader) gives this replica's batches, step after step. Iterating again goes on where it stopped.
// The place in the data is a count of samples of the global row, so that it holds for any batch size and any layout.
class DataLoader {
 public:
  DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options);
  DataLoader(SampleSource source, const DataLoaderOptions& options);
  DataLoader(DataLoader&&) noexcept;
  DataLoader& operator=(DataLoader&&) noexcept;
  ~DataLoader();

  // From now on gives the samples of one of `replicas` replicas. All tp and pp ranks of a replica get the same, those
  // that don't read as shapes alone; what they can't know is told them by set_samples. Opens the source if it reads.
  void distribute(int replicas, int replica, bool reads = true);
  // With prefetch, batches that are prepared ahead travel to that device as well (Batch::ahead).
  void send_ahead_to(torch::Device device);
  const std::vector<SampleEntry>& entries() const { return source_.entries; }
  std::int64_t global_batch() const { return options_.global_batch; }
  std::int64_t samples() const;                // of an epoch: the sizes of all sources
  std::vector<std::string> summaries() const;  // of its data, in words; none where it does not read
  void set_samples(std::int64_t samples) { samples_ = samples; }

  // The next batch, on every rank the next part of the same one. What it throws, the call after it throws again.
  Batch next();
  // Samples that next() has given so far; it goes on with this one.
  std::int64_t position() const { return position_; }
  void seek(std::int64_t position);

  // This replica's part of the global batch of `step`, from 0. Does not move the iteration.
  Batch batch(std::int64_t step) const;
  std::int64_t steps() const;

  class Iterator {
   public:
    Iterator(DataLoader* loader, std::int64_t left) : loader_(loader), left_(left) { load(); }
    Batch& operator*() { return batch_; }
    Iterator& operator++() {
      --left_;
      load();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return left_ != other.left_; }

   private:
    void load() {
      if (left_ > 0) batch_ = loader_->next();
    }
    DataLoader* loader_;
    std::int64_t left_;
    Batch batch_;
  };
  Iterator begin() { return {this, steps()}; }
  Iterator end() { return {this, 0}; }

 private:
  const std::shared_ptr<const Loader>& loader() const;
  std::int64_t epoch_steps() const;
  Batch batch_at(std::int64_t position) const;

  SampleSource source_;
  DataLoaderOptions options_;
  LoaderOptions share_;
  torch::Device device_ = torch::kCPU;
  mutable std::shared_ptr<const Loader> loader_;  // made when it is first needed
  std::int64_t samples_ = 0;                      // where this rank does not read
  std::int64_t position_ = 0;
  std::unique_ptr<Prefetcher> prefetcher_;  // null until next() is called, and without prefetch
};

}  // namespace gantry
