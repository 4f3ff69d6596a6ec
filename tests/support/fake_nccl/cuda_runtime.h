// The little of CUDA's runtime that Gantry's sources name, for tests without a GPU: a stream's type. The streams are
// those of fake_device.h.
#pragma once

typedef struct CUstream_st* cudaStream_t;
