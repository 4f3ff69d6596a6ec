#include "gantry/comm/device_backend.h"

namespace gantry {

torch::Device rank_device(World& world) {
  const auto* backend = dynamic_cast<const DeviceBackend*>(&world.backend());
  return backend ? backend->device() : torch::Device(torch::kCPU);
}

}  // namespace gantry
