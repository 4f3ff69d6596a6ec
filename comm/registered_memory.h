// Memory that is registered with a backend before repeated communication from it. NCCL then needs no internal
// copies (user buffer registration).
#pragma once

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// A group that can provide such memory.
class RegistersMemory {
 public:
  virtual ~RegistersMemory() = default;
  // Returns zeros [elements] that are registered with this group until the last tensor on them is destroyed;
  // undefined if the group has none. Every member must make the same calls, and all members must use this
  // memory for a collective if one of them does. The device's allocator does not count it. Throws
  // ResourceError if there is no memory.
  virtual torch::Tensor registered_zeros(std::int64_t elements, const torch::TensorOptions& options) = 0;
};

// Returns zeros [elements]: registered ones if the group provides them, otherwise plain ones. `group` may be
// null.
torch::Tensor communicated_zeros(ProcessGroup* group, std::int64_t elements, const torch::TensorOptions& options);

}  // namespace gantry
