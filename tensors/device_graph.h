// Device graphs (CUDA graphs): the work of a stream is captured once and replayed as a unit. A replay saves
// the host's work for each kernel.
//
// tensors/cuda implements them for CUDA, and tests/support for the fake device of the tests.
#pragma once

#include <memory>
#include <utility>

#include <c10/core/Device.h>

namespace gantry {

// Identifies the memory pool of captured graphs, like LibTorch's MempoolId_t. Zeros: no pool yet.
using GraphPool = std::pair<unsigned long long, unsigned long long>;

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Starts the capture. Until end(), work that any thread submits to this thread's current stream is captured
  // and does not run. The current stream must not be the default stream of the device.
  //
  // Memory that is allocated during the capture comes from `pool`, or from a new pool if `pool` is zeros. It
  // belongs to the graph even after its tensors are destroyed. Graphs may share a pool only if they are
  // replayed in the order in which they were captured.
  //
  // During the capture, c10::Error is thrown if the host waits for the device, or if a stream waits for work
  // that was not captured.
  virtual void begin(GraphPool pool) = 0;
  virtual void end() = 0;
  // Runs the captured kernels on this thread's current stream, with the same arguments and the same memory.
  virtual void replay() = 0;
  virtual GraphPool pool() const = 0;  // after end()
};

using MakeDeviceGraph = std::unique_ptr<DeviceGraph> (*)();

// Registers the implementation for devices of this type. Called before main().
bool register_device_graphs(c10::DeviceType type, MakeDeviceGraph make);
bool has_device_graphs(c10::DeviceType type);
// Throws InternalError if this type has no implementation.
std::unique_ptr<DeviceGraph> make_device_graph(c10::DeviceType type);

}  // namespace gantry
