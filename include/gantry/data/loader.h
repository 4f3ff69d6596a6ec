// Reads a replica's part of any global batch.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "gantry/data/collate.h"
#include "gantry/data/dataset.h"
#include "gantry/data/sampler.h"
#include "gantry/tensors/batch.h"

namespace gantry {

struct LoaderOptions {
  int replicas = 1;
  int replica = 0;
  bool shuffle = true;
  std::uint64_t seed = 1;
  bool reads = true;     // false: opens nothing and returns batches without data
  int workers = 1;       // number of threads that read the samples of a slow data set
  Collate collate = {};  // see DataLoaderOptions
};

class Loader {
 public:
  // Opens the source if options.reads. Throws UsageError if a data set has other entries than the source, or if the
  // shape of an entry does not have `length` elements.
  Loader(const SampleSource& source, const LoaderOptions& options, const OpenProgress& progress = no_progress);

  std::int64_t samples() const { return samples_; }  // over all data sets; 0 if it does not read

  std::vector<std::string> summaries() const;  // descriptions of the data sets that have one

  // Returns the samples at positions first to first + count - 1 of the endless global order, as entries [samples, ...]
  // of their own types, or the tensors that options.collate returns. They are partitioned over the replicas as evenly
  // as possible, in order. A loader that does not read returns tensors of these shapes on the meta device. Thread-safe.
  Batch batch(std::int64_t first, std::int64_t count) const;

 private:
  // Reads the numbers of one type: [samples, numbers per sample].
  torch::Tensor read(std::int64_t first, std::int64_t count, NumberType type, std::int64_t width) const;
  // `place`: position in the global order.
  void read_numbers(std::int64_t place, const NumberRow& row) const;
  TensorDict read_tensors(std::int64_t place) const;
  TensorDict collated(std::int64_t first, std::int64_t count) const;
  std::size_t threads() const;

  std::vector<SampleEntry> entries_;
  std::int64_t sequence_length_;
  std::map<NumberType, std::int64_t> widths_;  // numbers per sample of each type
  LoaderOptions options_;
  std::vector<WeightedDataset> datasets_;
  std::optional<BlendedSampler> sampler_;
  std::int64_t samples_ = 0;
};

}  // namespace gantry
