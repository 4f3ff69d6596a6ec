// Memory of NCCL's own allocator, registered with a communicator. NCCL ignores registrations of cudaMalloc's
// memory (NCCL_LEGACY_CUDA_REGISTER), and therefore of LibTorch's.
#pragma once

#include <memory>

#include "gantry/comm/nccl/nccl_communicator.h"

namespace gantry {

// Returns zeros [elements], made on the current stream. When the last tensor on the memory is destroyed, the
// host waits for the device, because other streams may still read it. Then the memory is deregistered, unless
// the communicator has ended before, and freed. Throws ResourceError if NCCL has no memory.
torch::Tensor new_registered_zeros(const std::shared_ptr<NcclCommunicator>& communicator, const NcclDevice& device,
                                   std::int64_t elements, const torch::TensorOptions& options);

}  // namespace gantry
