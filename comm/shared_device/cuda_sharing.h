// The sharing of a CUDA device, by its driver's IPC. The driver is loaded when it is asked: nothing is linked to it.
#pragma once

#include <memory>

#include "gantry/comm/shared_device/device_sharing.h"

namespace gantry {

// Of the first device that this process sees. ResourceError where there is none, or no driver that shares.
std::unique_ptr<DeviceSharing> share_cuda_device();

}  // namespace gantry
