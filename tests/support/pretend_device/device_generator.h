// Random number generators of the pretended devices. Each device has one, with the same sequence as the
// CPU's.
#pragma once

#include <ATen/core/Generator.h>

namespace gantry::testing {

const at::Generator& device_generator(int device);
at::Generator new_device_generator(int device);
// The CPU generator inside a device's generator, for CPU kernels.
at::Generator cpu_generator_of(const at::Generator& generator);

}  // namespace gantry::testing
