#include "gantry/tensors/kernels/cuda/current_stream.h"

#include <string>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "gantry/core/error.h"

namespace gantry::kernels {

void* stream_of(const at::Tensor& tensor) {
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  return guard.getStreamNativeHandle(guard.getStream(tensor.device()));
}

void check_launch(const char* error, const char* what) {
  if (error)
    throw ResourceError({what, std::string("CUDA reports: ") + error, "a kernel for this device",
                         "see docs/gpu.md for the devices that Gantry is built for"});
}

}  // namespace gantry::kernels
