// A backend whose ranks compute on a device of their own.
#pragma once

#include <functional>
#include <memory>

#include "gantry/comm/world.h"

namespace gantry {

// How an operation ends on the device, whose Work's wait() has only put streams in order. Holds no tensors.
class DeviceEnd {
 public:
  virtual ~DeviceEnd() = default;
  // Calls `then` once, on any thread and maybe before this returns: with true when the device has done the operation,
  // with false when it was aborted. `then` must return soon.
  virtual void when_ended(std::function<void(bool done)> then) = 0;
};

class DeviceBackend : public Backend {
 public:
  virtual torch::Device device() const = 0;
  // What this thread's last wait() for one of the backend's operations has left to the device; null where the host
  // itself has waited. Given once.
  virtual std::shared_ptr<DeviceEnd> take_end() const = 0;
};

// Those of a backend of any kind. One that wraps another is a DeviceBackend too and hands these on.
torch::Device device_of(const Backend& backend);                   // the CPU without a device
std::shared_ptr<DeviceEnd> take_end_from(const Backend& backend);  // null without one

// Where this rank keeps its model and computes: its device under such a backend, else the CPU.
torch::Device rank_device(World& world);

}  // namespace gantry
