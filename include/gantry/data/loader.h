// This replica's part of any global batch.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/data/sampler.h"
#include "gantry/tensors/batch.h"

namespace gantry {

struct LoaderOptions {
  int replicas = 1;
  int replica = 0;
  bool shuffle = true;
  std::uint64_t seed = 1;
  bool reads = true;  // false: opens nothing, and gives batches without data
};

class Loader {
 public:
  // Opens the source if it reads. UsageError for datasets whose entries are not the source's, and for an entry whose
  // shape has another number of elements than its length.
  Loader(const SampleSource& source, const LoaderOptions& options);

  std::int64_t samples() const { return samples_; }  // of all datasets; 0 where it does not read

  std::vector<std::string> summaries() const;  // of the datasets that have something to say

  // The entries, [samples, ...] each of its own type, of the global batch at positions first to first + count - 1 of
  // the row of samples, which has no end. It is partitioned over the replicas as evenly as possible, in order. A loader
  // that does not read gives tensors of those shapes on the meta device. Any thread may call it.
  Batch batch(std::int64_t first, std::int64_t count) const;

 private:
  // Of one type: [samples, numbers of a sample].
  torch::Tensor read(std::int64_t first, std::int64_t count, NumberType type, std::int64_t width) const;

  std::vector<SampleEntry> entries_;
  std::int64_t sequence_length_;
  std::map<NumberType, std::int64_t> widths_;  // how many numbers of each type a sample has
  LoaderOptions options_;
  std::vector<WeightedDataset> datasets_;
  std::optional<BlendedSampler> sampler_;
  std::int64_t samples_ = 0;
};

}  // namespace gantry
