// The operators of the pretended devices that have no implementation of their own: all but a few.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace gantry::testing {

void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace gantry::testing
