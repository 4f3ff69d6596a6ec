// A rank's device, through LibTorch's device-generic interfaces. Streams and events are those of the guard
// that is registered for the device type, so this code is not linked to the CUDA parts of LibTorch.
#pragma once

#include <string>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "gantry/tensors/libtorch.h"

namespace gantry {

class Backend;

class NcclDevice {
 public:
  // The highest priority for which LibTorch has a pool of streams. As in CUDA, smaller numbers are higher.
  static constexpr int kHighestPriority = -3;

  explicit NcclDevice(torch::Device device) : device_(device), guard_(device.type()) {}

  torch::Device device() const { return device_; }
  c10::Event new_event() const { return c10::Event(device_.type()); }
  c10::Stream current_stream() const { return guard_.getStream(device_); }  // current in the calling thread
  // Returns the next stream of the pool of a priority, from kHighestPriority to -1.
  c10::Stream pooled_stream(int priority = kHighestPriority) const { return guard_.getNewStream(device_, priority); }
  void wait() const { guard_.synchronizeDevice(device_.index()); }  // the host waits for the device
  void* handle(const c10::Stream& stream) const { return guard_.getStreamNativeHandle(stream); }

  // True for tensors on a device of this type, false for tensors that another backend carries. Throws
  // UsageError for a tensor on another device of the type.
  bool holds(const torch::Tensor& tensor, const char* call) const;
  // Prevents the reuse of the tensor's memory after it is freed, until `stream` has completed its present
  // work.
  void record_use(const torch::Tensor& tensor, const c10::Stream& stream) const;

 private:
  torch::Device device_;
  c10::impl::VirtualGuardImpl guard_;
};

// A stream that no other communicator of this process uses.
//
// LibTorch returns the streams of a fixed pool (32 per priority and device) in turn, so the 33rd request
// returns the first stream again. Two communicators on one stream would wait for each other's operations,
// which breaks the rule that prevents deadlocks on the device (nccl_backend.h). So the streams in use are
// recorded, and released in the destructor. If all streams of one priority are in use, the next lower
// priority is used. The lowest priority is never used, because the rest of the program computes and copies on
// it. A device with four or more priorities has 96 such streams.
class NcclStream {
 public:
  // Throws ResourceError if all streams of the device are in use.
  explicit NcclStream(const NcclDevice& device);
  ~NcclStream();
  NcclStream(const NcclStream&) = delete;
  NcclStream& operator=(const NcclStream&) = delete;

  const c10::Stream& get() const { return stream_; }

 private:
  const c10::Stream stream_;
};

// The data that determine the device of a rank.
struct DeviceQuestion {
  int rank = 0;                                   // this rank
  std::vector<std::vector<std::string>> visible;  // per rank: UUIDs of the devices that its process sees
  bool threads = false;                           // the ranks are threads of one process
  int nccl_version = 0;                           // result of ncclGetVersion: 23000 is 2.30.0
  bool sharing_asked = false;                     // NCCL_MULTI_RANK_GPU_ENABLE=1
};
// Returns the device's index in this rank's process. Each rank gets its own device if possible. Throws
// ResourceError if there is no device, or if ranks would share a device and cannot. All ranks compute the
// same assignment.
int choose_device_index(const DeviceQuestion& question);

// Collects the visible devices of every rank's process; `uuids` are those of this process. Collective over
// the job. The caller sets `nccl_version`.
DeviceQuestion ask_for_device(Backend& base, const std::vector<std::string>& uuids);

}  // namespace gantry
