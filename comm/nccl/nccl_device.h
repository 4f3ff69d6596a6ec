// A rank's device as LibTorch's device-generic interfaces show it. Streams and events are those of the guard that is
// registered for the device's type, so nothing here is linked to CUDA's parts of LibTorch.
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
  // The highest priority that LibTorch has a pool of streams for. As in CUDA, smaller numbers are higher.
  static constexpr int kHighestPriority = -3;

  explicit NcclDevice(torch::Device device) : device_(device), guard_(device.type()) {}

  torch::Device device() const { return device_; }
  c10::Event new_event() const { return c10::Event(device_.type()); }
  c10::Stream current_stream() const { return guard_.getStream(device_); }  // of this thread
  // The next stream of the pool of a priority, from kHighestPriority to -1.
  c10::Stream pooled_stream(int priority = kHighestPriority) const { return guard_.getNewStream(device_, priority); }
  void wait() const { guard_.synchronizeDevice(device_.index()); }  // the host, for all that the device was given
  void* handle(const c10::Stream& stream) const { return guard_.getStreamNativeHandle(stream); }

  // True of tensors of the device's type; false of those that other means carry. UsageError for one on another device
  // of the type.
  bool holds(const torch::Tensor& tensor, const char* call) const;
  // Keeps the tensor's memory from being used anew, once it is freed, until `stream` has done what it holds by then.
  void record_use(const torch::Tensor& tensor, const c10::Stream& stream) const;

 private:
  torch::Device device_;
  c10::impl::VirtualGuardImpl guard_;
};

// A stream that no other communicator of this process has.
//
// LibTorch hands out the streams of a fixed pool (32 of a priority and device) in turn, so the 33rd that is asked for
// is the first again. Two communicators on one stream would wait behind each other's operations, and the rule that
// keeps the device free of deadlock (nccl_backend.h) would not hold. So what is lent is remembered, and given back at
// the end. Where one priority's are all lent, the next lower one's are, but for the lowest: the rest of the program
// computes and copies on those. A device of four priorities and more has 96.
class NcclStream {
 public:
  // ResourceError where all of the device's pool are lent.
  explicit NcclStream(const NcclDevice& device);
  ~NcclStream();
  NcclStream(const NcclStream&) = delete;
  NcclStream& operator=(const NcclStream&) = delete;

  const c10::Stream& get() const { return stream_; }

 private:
  const c10::Stream stream_;
};

// What decides which device a rank takes.
struct DeviceQuestion {
  int rank = 0;                                   // this one
  std::vector<std::vector<std::string>> visible;  // of each rank: the devices that its process sees, by UUID
  bool threads = false;                           // ranks are threads of one process
  int nccl_version = 0;                           // as ncclGetVersion gives it: 23000 is 2.30.0
  bool sharing_asked = false;                     // NCCL_MULTI_RANK_GPU_ENABLE=1
};
// The device's index in this rank's process. Each rank gets one of its own where that is possible; ResourceError where
// there is none, or where ranks would share one and can't. The same division on every rank.
int choose_device_index(const DeviceQuestion& question);

// Collective over the job: what every rank's process sees, this one's being `uuids`. The versions are left to the
// caller.
DeviceQuestion ask_for_device(Backend& base, const std::vector<std::string>& uuids);

}  // namespace gantry
