// The size up to which a training step has the logits of a microbatch at once.
#pragma once

#include <cstdint>

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// Returns the default limit in bytes: 32 MB on the CPU, and a 32nd of the memory of other devices (at least 32 MB).
// Tiles save memory, but the backward computes each of their logits again.
std::int64_t default_logit_limit(const torch::Device& device);

}  // namespace gantry::nn
