// A pretended device that several processes of one host share. Each process reads the memory of the others,
// which is in files, and its streams wait for their streams.
//
// Races between processes are not detected. With late kernels (set_kernel_timing) a missing wait leads to
// wrong values: the memory is read too early, or after it was overwritten.
#pragma once

#include <string>

#include "gantry/comm/shared_device/device_sharing.h"

namespace gantry::testing {

// Faults to inject, for tests that they are detected.
struct SharingFaults {
  int drops_wait = 0;           // N > 0: every N-th wait of a stream for a shared event is omitted
  bool refuses_memory = false;  // opening the memory of other processes fails, as between containers
};
void set_sharing_faults(const SharingFaults& faults);

// Shares a device that this process has not used yet. `uuid`: the reported UUID of the device.
std::unique_ptr<DeviceSharing> share_pretend_device(int device, const std::string& uuid = "GPU-pretended");

}  // namespace gantry::testing
