#include "gantry/nn/logit_limit.h"

#include <algorithm>

#include "gantry/core/config/logit_limit.h"
#include "gantry/tensors/device_memory.h"

namespace gantry::nn {

std::int64_t default_logit_limit(const torch::Device& device) {
  constexpr std::int64_t kShareOfDevice = 32;
  if (device.is_cpu()) return kLogitLimit;
  return std::max(kLogitLimit, device_memory_bytes(device).value_or(0) / kShareOfDevice);
}

}  // namespace gantry::nn
