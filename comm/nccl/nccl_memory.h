// Memory of NCCL's own allocator, registered with a communicator: it ignores registrations of what cudaMalloc gave
// (NCCL_LEGACY_CUDA_REGISTER), and so of LibTorch's.
#pragma once

#include <memory>

#include "gantry/comm/nccl/nccl_communicator.h"

namespace gantry {

// Zeros [elements] on the current stream. When nobody holds them any more the host waits for the device, since other
// streams may still read them, and the memory is deregistered, unless the communicator has gone before, and freed.
// ResourceError where NCCL has none.
torch::Tensor new_registered_zeros(const std::shared_ptr<NcclCommunicator>& communicator, const NcclDevice& device,
                                   std::int64_t elements, const torch::TensorOptions& options);

}  // namespace gantry
