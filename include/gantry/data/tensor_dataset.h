// A data set of tensors in memory: created by a program, or read from a safetensors file.
#pragma once

#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Example: TensorDataset(read_safetensors("images.safetensors")). Each tensor is an entry [samples, ...] of any shape,
// in its own type. The tensors are shared; do not modify them.
class TensorDataset final : public Dataset {
 public:
  // Throws UsageError that names the entry if it is not on the CPU, has a type that NumberType lacks, or has another
  // number of samples than the first one. Throws it also if there are no samples.
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
