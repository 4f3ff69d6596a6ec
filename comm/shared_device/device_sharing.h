// One device's memory and events between processes of a host, which CUDA calls IPC.
//
// cuda_sharing.h has it for CUDA's devices; that of the tests' pretended device stands in tests/support.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Stream.h>

#include "gantry/tensors/tensor.h"

namespace gantry {

// Names something of a process to another one; plain bytes, which travel in messages.
using SharedHandle = std::array<char, 64>;

// Where memory lies, as its process tells another one.
struct SharedPlace {
  SharedHandle allocation = {};  // which is opened as a whole; never the same for what is allocated later
  std::uint64_t begin = 0;       // the allocation's address in its own process; 0: no memory
  std::int64_t offset = 0;       // bytes behind it
};

// A point in a stream's work that streams of other processes can wait for. Its last record counts.
class SharedEvent {
 public:
  virtual ~SharedEvent() = default;
  virtual SharedHandle handle() const = 0;
  virtual void record(const c10::Stream& stream) = 0;  // of an event of this process
  // What `stream` is given from now on comes after what was recorded by now. The host does not wait.
  virtual void block(const c10::Stream& stream) const = 0;
};

// A rank's. Used by one thread at a time. ResourceError where the device refuses, with its words.
class DeviceSharing {
 public:
  virtual ~DeviceSharing() = default;
  virtual torch::Device device() const = 0;
  virtual std::string uuid() const = 0;  // the device's, at most 63 bytes: the same in every process

  virtual SharedPlace find_place(const void* memory) = 0;
  // Of another process. The first byte of the allocation in this one, for its kernels to read, until it is closed.
  virtual char* open_memory(const SharedHandle& allocation) = 0;
  virtual void close_memory(char* opened) = 0;  // no kernel uses it any more

  virtual std::unique_ptr<SharedEvent> make_event() = 0;
  virtual std::unique_ptr<SharedEvent> open_event(const SharedHandle& event) = 0;
};

}  // namespace gantry
