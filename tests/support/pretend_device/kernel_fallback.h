// The fallback for operators without an implementation for the pretended devices, which are most of them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace gantry::testing {

void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace gantry::testing
