#include "gantry/comm/shared_device/cuda_sharing.h"
#include "gantry/comm/shared_device/shared_device_backend.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/cuda_driver.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

void run_on_ipc(World& base, const std::function<void(World&)>& body) {
  const CudaDriverCalls driver;
  driver.require("ipc");
  if (driver.sees_devices()) driver.require_device("ipc", {torch::kCUDA, 0});  // the shared device
  const auto sharing = share_cuda_device();
  run_on_shared_device(base, *sharing, body);
}

}  // namespace gantry
