// A data set of a function that returns the tensors of a sample.
#pragma once

#include <functional>
#include <vector>

#include "gantry/data/sample_dataset.h"

namespace gantry {

// Example: FunctionDataset(1000, [](std::int64_t index) -> TensorDict { return {{"x", ...}, {"labels", ...}}; }).
class FunctionDataset final : public SampleDataset {
 public:
  using Read = std::function<TensorDict(std::int64_t index)>;

  // `size`: number of samples, at least 1. `read` is called from any thread, and here for sample 0; all samples have
  // the entries, types and shapes of this sample. Shapes may differ if the loader has DataLoaderOptions::collate.
  // Throws UsageError, also while samples are read, if this does not hold.
  FunctionDataset(std::int64_t size, Read read, std::int64_t sequence_length = 0);

  std::int64_t size() const override { return size_; }
  std::int64_t sequence_length() const override { return sequence_length_; }
  std::vector<SampleEntry> entries() const override { return entries_; }
  void read_numbers(std::int64_t index, const NumberRow& row) const override;
  TensorDict sample(std::int64_t index) const override;

 private:
  std::int64_t size_;
  Read read_;
  std::int64_t sequence_length_;
  std::vector<SampleEntry> entries_;
};

}  // namespace gantry
