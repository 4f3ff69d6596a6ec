// Sharing of a device's memory and events between processes of a host, which CUDA calls IPC.
//
// cuda_sharing.h implements it for CUDA devices, and tests/support for the fake device of the tests.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Stream.h>

#include "gantry/tensors/tensor.h"

namespace gantry {

// Identifies an object of a process for other processes; plain bytes that can be sent in messages.
using SharedHandle = std::array<char, 64>;

// A location in memory, as a process sends it to another one.
struct SharedPlace {
  SharedHandle allocation = {};  // opened as a unit; later allocations have other handles
  std::uint64_t begin = 0;       // the allocation's address in its own process; 0: no memory
  std::int64_t offset = 0;       // offset of the location in the allocation, in bytes
};

// A point in the work of a stream, for which streams of other processes can wait. The last call of record()
// counts.
class SharedEvent {
 public:
  virtual ~SharedEvent() = default;
  virtual SharedHandle handle() const = 0;
  virtual void record(const c10::Stream& stream) = 0;  // only for an event of this process
  // Makes later work on `stream` wait for the work that was recorded so far. The host does not wait.
  virtual void block(const c10::Stream& stream) const = 0;
};

// The device sharing of a rank. Used by one thread at a time. Throws ResourceError with the device's error
// text if a call fails.
class DeviceSharing {
 public:
  virtual ~DeviceSharing() = default;
  virtual torch::Device device() const = 0;
  virtual std::string uuid() const = 0;  // the device's, at most 63 bytes; the same in every process

  virtual SharedPlace find_place(const void* memory) = 0;
  // Opens memory of another process. Returns the address of the first byte of the allocation in this process,
  // valid for kernels until close_memory().
  virtual char* open_memory(const SharedHandle& allocation) = 0;
  virtual void close_memory(char* opened) = 0;  // no kernel may still use it

  virtual std::unique_ptr<SharedEvent> make_event() = 0;
  virtual std::unique_ptr<SharedEvent> open_event(const SharedHandle& event) = 0;
};

}  // namespace gantry
