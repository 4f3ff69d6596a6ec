// A function that both compilers take: the host's, and CUDA's for the device. What a kernel computes for an element is
// such a function, so that the host gives the same numbers and tests them where there is no device.
#pragma once

#ifdef __CUDACC__
#define GANTRY_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define GANTRY_HOST_DEVICE __attribute__((always_inline)) inline
#endif
