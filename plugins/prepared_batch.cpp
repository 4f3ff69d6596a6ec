#include "gantry/plugins/prepared_batch.h"

#include <torch/torch.h>

namespace gantry {

std::optional<torch::ScalarType> real_type_of(const StageModule& module) {
  std::optional<torch::ScalarType> type;
  for (const auto& held : module.parameters) {
    if (!held.tensor.is_floating_point()) continue;
    if (type && *type != held.tensor.scalar_type()) return std::nullopt;
    type = held.tensor.scalar_type();
  }
  return type;
}

PreparedBatch::PreparedBatch(const TensorDict& given, torch::Device device,
                             std::optional<torch::ScalarType> real_type) {
  for (const auto& [name, tensor] : given) {
    torch::Tensor entry = tensor;
    if (entry.defined() && real_type && entry.is_floating_point()) entry = entry.to(*real_type);
    if (entry.defined() && !entry.is_meta() && entry.device() != device) {
      const torch::Tensor there = to_device(entry, device);
      if (entry.is_cpu()) known_.emplace_back(there, entry);
      entry = there;
    }
    tensors.set(name, entry);
  }
}

}  // namespace gantry
