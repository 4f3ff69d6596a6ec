// The use of a rank's device memory. It is reported if an allocation fails, and checked before the first
// step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/plugins/boosted.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// In bytes.
struct DeviceMemory {
  std::string device;  // "cuda:0"
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;   // its state, and float32 copies of the parameters
  std::int64_t other = 0;       // activations, messages, and workspaces of kernels
  std::int64_t total = 0;       // memory of the device; 0: unknown
  std::int64_t free = 0;        // memory that can still be allocated
  std::int64_t first_step = 0;  // memory that the optimizer's first step will allocate
};

// Measures a rank with these parameters and buffers on `device`. `optimizer` may be null. Each storage counts
// once and with its full size, for the first part that uses it.
DeviceMemory device_memory(const std::vector<torch::Tensor>& values, BoostedOptimizer* optimizer, torch::Device device);
DeviceMemory device_memory(const StageModule& model, BoostedOptimizer* optimizer, torch::Device device);

// The error for a failed allocation. It lists the size of each part, and a remedy that makes the largest part
// smaller.
ResourceError no_device_memory(const DeviceMemory& memory);

// Throws ResourceError if the optimizer's first step needs more memory than is free. The error then occurs
// before the first step instead of at its end. Activations are not counted.
void check_first_step(const DeviceMemory& memory);

// Runs `body`. If an allocation on the device fails, throws no_device_memory(memory()).
void naming_device_memory(const std::function<void()>& body, const std::function<DeviceMemory()>& memory);

}  // namespace gantry
