// The stream on which the kernels of a tensor run, and the error of a launch.
#pragma once

#include <string>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "gantry/core/error.h"
#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// Returns this thread's stream of the tensor's device, as CUDA has it (a cudaStream_t).
inline void* stream_of(const at::Tensor& tensor) {
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  return guard.getStreamNativeHandle(guard.getStream(tensor.device()));
}

// Throws ResourceError for the result of a launch that is not null. `what`: the operation.
inline void check_launch(const char* error, const char* what) {
  if (error)
    throw ResourceError({what, std::string("CUDA reports: ") + error, "a kernel for this device",
                         "see docs/gpu.md for the devices that Gantry is built for"});
}

}  // namespace gantry::kernels
