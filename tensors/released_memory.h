// Memory that is released and allocated again under the same tensors. Tensors over it keep their identity,
// versions and hooks, and references that autograd has saved stay valid. Using a tensor while its memory is
// released throws.
#pragma once

#include <string>

#include "gantry/tensors/tensor.h"

namespace gantry {

class ReleasedMemory {
 public:
  // `elements` elements of `type` on `device`, initially released. `error`: the text of the exception that a
  // use throws while the memory is released. Not available in inference mode.
  ReleasedMemory(std::int64_t elements, torch::ScalarType type, torch::Device device, std::string error);

  // Returns a contiguous tensor over the memory, from element `offset` on. For autograd it is not a view, and
  // it has a version counter of its own: a write to one tensor does not invalidate saved tensors over the
  // same memory.
  torch::Tensor over(std::int64_t offset, at::IntArrayRef sizes) const;

  bool is_there() const { return there_; }
  void bring();    // allocates the memory, uninitialized
  void release();  // frees the memory; only work on the current stream may still use it

 private:
  void refuse_use() const;

  torch::Tensor full_;
  std::int64_t bytes_;
  std::string error_;
  bool there_ = false;
};

}  // namespace gantry
