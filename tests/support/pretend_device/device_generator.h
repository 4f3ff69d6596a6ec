// Random numbers of the pretended devices: each has a generator, which draws as the CPU's does.
#pragma once

#include <ATen/core/Generator.h>

namespace gantry::testing {

const at::Generator& device_generator(int device);
at::Generator new_device_generator(int device);
// The CPU's generator within a device's, for the CPU's kernels.
at::Generator cpu_generator_of(const at::Generator& generator);

}  // namespace gantry::testing
