// Makes autograd report each parameter whose gradient was added to the gradient buffers.
#pragma once

#include <memory>

#include "gantry/optimizers/gradient_buffers.h"

namespace gantry {

// Installs a hook on every parameter. The hooks do not extend the lifetime of `gradients`. Call it after
// sharding: if a parameter changes its shape after its hook was installed, the next backward throws.
void report_ready_gradients(const std::shared_ptr<GradientBuffers>& gradients);

}  // namespace gantry
