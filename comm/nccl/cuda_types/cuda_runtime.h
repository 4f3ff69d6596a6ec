// The names of CUDA's runtime that nccl.h needs: two handles. Gantry calls NCCL and LibTorch, never CUDA
// itself. So it is built without CUDA's headers, which a machine with LibTorch and NCCL may lack.
#pragma once

#include <stddef.h>  // nccl.h counts on it

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
