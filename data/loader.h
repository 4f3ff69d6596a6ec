// This replica's part of every global batch.
#pragma once

#include <memory>

#include "gantry/data/dataset.h"
#include "gantry/data/sampler.h"
#include "gantry/tensors/batch.h"

namespace gantry {

struct LoaderOptions {
  std::int64_t global_batch = 1;
  int replicas = 1;
  int replica = 0;
  bool shuffle = true;
  std::uint64_t seed = 1;
};

class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);

  // {input_ids, labels}, int64 [samples, sequence], of `step` from 0. The global batch is dealt to replicas as evenly
  // as possible, in order.
  Batch batch(std::int64_t step) const;

 private:
  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  Sampler sampler_;
};

}  // namespace gantry
