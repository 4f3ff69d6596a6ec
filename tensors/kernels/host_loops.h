// Loops of the host that the compiler vectorises, with a version for each kind of processor. The version is chosen when
// the library is loaded: before ThreadSanitizer is ready to see it.
//
// A function with GANTRY_HOST_LOOPS has these versions. Those that it calls have GANTRY_IN_LOOPS, so that they become
// part of each version.
#pragma once

#if defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define GANTRY_HOST_LOOPS
#else
#define GANTRY_HOST_LOOPS __attribute__((target_clones("avx512f", "arch=x86-64-v3", "default")))
#endif

#define GANTRY_IN_LOOPS __attribute__((always_inline)) inline
