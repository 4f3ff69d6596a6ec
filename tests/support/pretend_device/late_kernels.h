// Late kernels (KernelTiming::kLate): their results have a shape at once, and values later.
#pragma once

#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "cpu_view.h"

namespace gantry::testing {

// True if the operator uses random numbers. Such operators run at once, in program order.
bool draws(const c10::FunctionSchema& schema);

// Puts the call on the current stream and returns its results on `device`. `call`: CPU views of the
// arguments.
std::vector<c10::IValue> run_late(const c10::OperatorHandle& op, const torch::jit::Stack& call, CpuView& view,
                                  c10::Device device, std::vector<Access> accesses);

}  // namespace gantry::testing
