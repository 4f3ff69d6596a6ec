#include "gantry/comm/registered_memory.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {

torch::Tensor communicated_zeros(ProcessGroup* group, std::int64_t elements, const torch::TensorOptions& options) {
  torch::Tensor registered;
  if (auto* registers = dynamic_cast<RegistersMemory*>(group))
    registered = registers->registered_zeros(elements, options);
  return registered.defined() ? registered : torch::zeros({elements}, options);
}

}  // namespace gantry
