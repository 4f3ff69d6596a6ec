// Marks a function that both the host's compiler and CUDA's compiler accept. The computation of a kernel for
// one element is such a function. So the host computes the same numbers, and tests check them without a
// device.
#pragma once

#ifdef __CUDACC__
#define GANTRY_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define GANTRY_HOST_DEVICE __attribute__((always_inline)) inline
#endif
