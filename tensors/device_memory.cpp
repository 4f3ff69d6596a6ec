#include "gantry/tensors/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace gantry {

std::optional<std::int64_t> device_memory_bytes(const torch::Device& device) {
  if (device.is_cpu()) return std::nullopt;
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (!allocator) return std::nullopt;
  return static_cast<std::int64_t>(
      allocator->getMemoryInfo(device.has_index() ? device.index() : c10::DeviceIndex{0}).second);
}

}  // namespace gantry
