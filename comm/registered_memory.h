// Memory that is registered with a backend before repeated communication from it: NCCL then needs no copies of its
// own (its user buffer registration).
#pragma once

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// A group that may have such memory.
class RegistersMemory {
 public:
  virtual ~RegistersMemory() = default;
  // Zeros [elements], registered with this group until nobody holds them any more; undefined where the group gives
  // none. Every member calls it alike, and what one member brings to a collective from such memory all bring from
  // theirs. The device's allocator does not know it. ResourceError where there is no memory.
  virtual torch::Tensor registered_zeros(std::int64_t elements, const torch::TensorOptions& options) = 0;
};

// Zeros [elements]: that group's registered ones where it has them, else plain ones. `group` may be null.
torch::Tensor communicated_zeros(ProcessGroup* group, std::int64_t elements, const torch::TensorOptions& options);

}  // namespace gantry
