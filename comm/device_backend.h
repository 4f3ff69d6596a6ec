// A backend whose ranks compute on a device of their own.
#pragma once

#include "gantry/comm/world.h"

namespace gantry {

class DeviceBackend : public Backend {
 public:
  virtual torch::Device device() const = 0;
};

// Where this rank keeps its model and computes: its device under such a backend, else the CPU.
torch::Device rank_device(World& world);

}  // namespace gantry
