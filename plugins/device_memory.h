// What the memory of a rank's device is used for: said where an allocation fails, and asked before the first step.
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
  std::int64_t optimizer = 0;   // its states, and float32 copies of the parameters
  std::int64_t other = 0;       // activations, messages, and what kernels work in
  std::int64_t total = 0;       // of the device; 0: it does not say
  std::int64_t free = 0;        // what can still be allocated
  std::int64_t first_step = 0;  // what the optimizer's first step will allocate
};

// Of a rank with these parameters and buffers, whose device is `device`; `optimizer` may be null. Parts are counted by
// the memory that they lie in.
DeviceMemory device_memory(const std::vector<torch::Tensor>& values, BoostedOptimizer* optimizer, torch::Device device);
DeviceMemory device_memory(const StageModule& model, BoostedOptimizer* optimizer, torch::Device device);

// An allocation has failed: which part is how large, and what would make the largest one smaller.
ResourceError no_device_memory(const DeviceMemory& memory);

// ResourceError where the optimizer's first step can't have the memory that it needs: before the first step, instead of
// at its end. Activations are not counted.
void check_first_step(const DeviceMemory& memory);

// Runs `body`; a failed allocation of the device's becomes no_device_memory() of what `memory` then says.
void naming_device_memory(const std::function<void()>& body, const std::function<DeviceMemory()>& memory);

}  // namespace gantry
