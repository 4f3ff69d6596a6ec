// Batches for a training loop: written as for one device, dealt over replicas by boosting.
#pragma once

#include <memory>

#include "gantry/data/loader.h"

namespace gantry {

struct DataLoaderOptions {
  std::int64_t global_batch = 1;
  bool shuffle = true;
  std::uint64_t seed = 1;
  std::int64_t steps = 0;  // of one iteration; 0: an epoch's whole batches
};

// for (Batch& batch : loader) gives this replica's batches, step after step. Iterating again goes on where it stopped.
class DataLoader {
 public:
  DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options);

  // From now on gives the samples of one of `replicas` replicas. All tp and pp ranks of a replica get the same.
  void distribute(int replicas, int replica);
  // This replica's part of the global batch of `step`, from 0. Does not move the iteration.
  Batch batch(std::int64_t step) const { return loader_.batch(step); }
  std::int64_t steps() const { return steps_; }

  class Iterator {
   public:
    Iterator(DataLoader* loader, std::int64_t left) : loader_(loader), left_(left) { load(); }
    Batch& operator*() { return batch_; }
    Iterator& operator++() {
      ++loader_->next_step_;
      --left_;
      load();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return left_ != other.left_; }

   private:
    void load() {
      if (left_ > 0) batch_ = loader_->batch(loader_->next_step_);
    }
    DataLoader* loader_;
    std::int64_t left_;
    Batch batch_;
  };
  Iterator begin() { return {this, steps_}; }
  Iterator end() { return {this, 0}; }

 private:
  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  Loader loader_;
  std::int64_t steps_;
  std::int64_t next_step_ = 0;
};

}  // namespace gantry
