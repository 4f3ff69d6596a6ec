// Collectives as calls of NCCL.
#pragma once

#include <nccl.h>

#include "gantry/comm/process_group.h"

namespace gantry {

// Issues a collective of contiguous tensors at `out` and `in`, between ncclGroupStart and ncclGroupEnd. NCCL
// has no call for uneven rows, so those take one call per rank. Returns the first code that is not a success.
ncclResult_t call_nccl(const Collective& call, char* out, const char* in, int size, ncclComm_t communicator,
                       cudaStream_t stream);

}  // namespace gantry
