// Has autograd tell the gradient buckets of each parameter whose gradient is added.
#pragma once

#include <memory>

#include "gantry/optimizers/gradient_buffers.h"

namespace gantry {

// Installs a hook on every parameter, which keeps `gradients` alive no longer than its owner does. After sharding: a
// parameter that changes its shape under a hook makes the next backward throw.
void report_ready_gradients(const std::shared_ptr<GradientBuffers>& gradients);

}  // namespace gantry
