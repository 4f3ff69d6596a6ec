// Memory that comes and goes under the same tensors. Tensors over it keep their identity, versions, hooks and what
// autograd has saved of them; using one while the memory is away throws.
#pragma once

#include <string>

#include "gantry/tensors/tensor.h"

namespace gantry {

class ReleasedMemory {
 public:
  // Of `elements` of that type, on that device; away at first. `error` is what a use then throws. Not in inference
  // mode.
  ReleasedMemory(std::int64_t elements, torch::ScalarType type, torch::Device device, std::string error);

  // A contiguous tensor over the memory, from element `offset` on, which autograd knows neither as a view nor as
  // sharing a version with others: writing through one leaves what was saved of others valid.
  torch::Tensor over(std::int64_t offset, at::IntArrayRef sizes) const;

  bool is_there() const { return there_; }
  void bring();    // with undefined contents
  void release();  // nothing may read it any more, on any stream but the current one

 private:
  void refuse_use() const;

  torch::Tensor full_;
  std::int64_t bytes_;
  std::string error_;
  bool there_ = false;
};

}  // namespace gantry
