// Kernels of the late way: what they will give has its shape now and its numbers later.
#pragma once

#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "cpu_view.h"

namespace gantry::testing {

// Whether the operator draws random numbers: those are drawn in the program's order, at once.
bool draws(const c10::FunctionSchema& schema);

// Puts the call on the current stream and gives its results on `device`. `call` are the CPU's views of its arguments.
std::vector<c10::IValue> run_late(const c10::OperatorHandle& op, const torch::jit::Stack& call, CpuView& view,
                                  c10::Device device, std::vector<Access> accesses);

}  // namespace gantry::testing
