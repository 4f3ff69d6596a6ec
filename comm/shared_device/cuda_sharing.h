// The sharing of a CUDA device, through the IPC functions of the driver. The driver is loaded at run time: no
// library is linked for it.
#pragma once

#include <memory>

#include "gantry/comm/shared_device/device_sharing.h"

namespace gantry {

// Returns the sharing of the first device that this process sees. Throws ResourceError if there is no device,
// or no driver with IPC.
std::unique_ptr<DeviceSharing> share_cuda_device();

}  // namespace gantry
