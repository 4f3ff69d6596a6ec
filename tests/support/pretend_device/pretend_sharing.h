// A pretended device that processes of one host have in common: each really reads the others' memory, which are files
// of their processes, and its streams wait for the others' streams.
//
// Races between processes are not watched. With late kernels (set_kernel_timing) a wait that is missing shows in
// numbers: what is read is not there yet, or there no more.
#pragma once

#include <string>

#include "gantry/comm/shared_device/device_sharing.h"

namespace gantry::testing {

// Faults of a program that the device pretends, so that tests see them found.
struct SharingFaults {
  int drops_wait = 0;           // every so many-th wait of a stream for another process's event is left out
  bool refuses_memory = false;  // of other processes, as between containers
};
void set_sharing_faults(const SharingFaults& faults);

// Of that device, which nothing of this process has used yet. `uuid`: what it is called.
std::unique_ptr<DeviceSharing> share_pretend_device(int device, const std::string& uuid = "GPU-pretended");

}  // namespace gantry::testing
