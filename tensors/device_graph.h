// What a device is given, recorded once and put on it again as a whole: CUDA's graphs. The host's part of each kernel
// is done when it is recorded.
//
// tensors/cuda has it for CUDA; that of the tests' pretended device stands in tests/support.
#pragma once

#include <memory>
#include <utility>

#include <c10/core/Device.h>

namespace gantry {

// Names memory that recordings have for themselves; zeros: none yet. As LibTorch's MempoolId_t.
using GraphPool = std::pair<unsigned long long, unsigned long long>;

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // From here to end() whatever this thread's current stream is given, by any thread, is recorded and does not run.
  // Memory that is allocated there comes from the pool, a new one where it is zeros, and belongs to the recording even
  // after its tensors are gone: recordings share a pool only where they are replayed in the order of their recording.
  // Not on a device's default stream. Whatever has the host wait for the device, or has a stream wait for what is not
  // recorded, throws c10::Error.
  virtual void begin(GraphPool pool) = 0;
  virtual void end() = 0;
  // On this thread's current stream. The same kernels with the same arguments, on the same memory.
  virtual void replay() = 0;
  virtual GraphPool pool() const = 0;  // after end()
};

using MakeDeviceGraph = std::unique_ptr<DeviceGraph> (*)();

// Says what records on devices of this type: before main.
bool register_device_graphs(c10::DeviceType type, MakeDeviceGraph make);
bool has_device_graphs(c10::DeviceType type);
// InternalError where nothing records there.
std::unique_ptr<DeviceGraph> make_device_graph(c10::DeviceType type);

}  // namespace gantry
