// Samples that are tensors in memory: what a program has made, or a safetensors file has.
#pragma once

#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// TensorDataset(read_safetensors("images.safetensors")): an entry [samples, ...] of any shape for each tensor, in its
// own type. The tensors are shared, and not to be changed.
class TensorDataset final : public Dataset {
 public:
  // UsageError, naming the entry, for one that is not on the CPU, of a type that NumberType has not, or of another
  // number of samples than the first; and without any sample.
  explicit TensorDataset(const TensorDict& samples, std::int64_t sequence_length = 0);

  std::int64_t size() const override { return size_; }
  std::int64_t sequence_length() const override { return sequence_length_; }
  std::vector<SampleEntry> entries() const override { return entries_; }
  void read_numbers(std::int64_t index, const NumberRow& row) const override;

 private:
  std::vector<SampleEntry> entries_;
  std::vector<torch::Tensor> tensors_;  // contiguous, by entry
  std::int64_t size_ = 0, sequence_length_;
};

}  // namespace gantry
