// The stream on which the kernels of a tensor run, and the error of a launch.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// Returns this thread's stream of the tensor's device, as CUDA has it (a cudaStream_t).
void* stream_of(const at::Tensor& tensor);

// Throws ResourceError for the result of a launch that is not null. `what`: the operation.
void check_launch(const char* error, const char* what);

}  // namespace gantry::kernels
