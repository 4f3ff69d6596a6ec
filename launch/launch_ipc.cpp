#include "gantry/comm/shared_device/cuda_sharing.h"
#include "gantry/comm/shared_device/shared_device_backend.h"
#include "gantry/launch/backends.h"

namespace gantry {

void run_on_ipc(World& base, const std::function<void(World&)>& body) {
  const auto sharing = share_cuda_device();
  run_on_shared_device(base, *sharing, body);
}

}  // namespace gantry
