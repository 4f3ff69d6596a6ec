// Collectives as NCCL's calls.
#pragma once

#include <nccl.h>

#include "gantry/comm/process_group.h"

namespace gantry {

// A collective of contiguous tensors at `out` and `in`, between ncclGroupStart and ncclGroupEnd: uneven rows, for which
// NCCL has no call, by a call for each rank. Gives the first code that is not a success.
ncclResult_t call_nccl(const Collective& call, char* out, const char* in, int size, ncclComm_t communicator,
                       cudaStream_t stream);

}  // namespace gantry
