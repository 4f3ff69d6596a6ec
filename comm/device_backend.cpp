#include "gantry/comm/device_backend.h"

#include <torch/torch.h>

namespace gantry {

torch::Device device_of(const Backend& backend) {
  const auto* of_device = dynamic_cast<const DeviceBackend*>(&backend);
  return of_device ? of_device->device() : torch::Device(torch::kCPU);
}

std::shared_ptr<DeviceEnd> take_end_from(const Backend& backend) {
  const auto* of_device = dynamic_cast<const DeviceBackend*>(&backend);
  return of_device ? of_device->take_end() : nullptr;
}

torch::Device rank_device(World& world) { return device_of(world.backend()); }

}  // namespace gantry
