// The memory of a device.
#pragma once

#include <cstdint>
#include <optional>

#include "gantry/tensors/tensor.h"

namespace gantry {

// Returns all memory of the device in bytes, used or free; empty for the CPU and devices whose allocator does not know.
std::optional<std::int64_t> device_memory_bytes(const torch::Device& device);

}  // namespace gantry
