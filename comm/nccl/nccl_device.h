// A rank's device as LibTorch's device-generic interfaces show it. Streams and events are those of the guard that is
// registered for the device's type, so nothing here is linked to CUDA's parts of LibTorch.
#pragma once

#include <string>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

namespace gantry {

class Backend;

class NcclDevice {
 public:
  explicit NcclDevice(torch::Device device) : device_(device), guard_(device.type()) {}

  torch::Device device() const { return device_; }
  c10::Event new_event() const { return c10::Event(device_.type()); }
  c10::Stream current_stream() const { return guard_.getStream(device_); }  // of this thread
  c10::Stream pooled_stream() const { return guard_.getStreamFromGlobalPool(device_, /*isHighPriority=*/true); }
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

// What decides which device a rank takes.
struct DeviceQuestion {
  int devices = 0;             // that this process sees
  int sharers = 1;             // ranks of this host that see the same ones
  int place = 0;               // of this rank among them
  bool threads = false;        // they are threads of one process
  int nccl_version = 0;        // as ncclGetVersion gives it: 23000 is 2.30.0
  bool sharing_asked = false;  // NCCL_MULTI_RANK_GPU_ENABLE=1
};
// The device's index. ConfigError where there is none; ResourceError where ranks would share one and can't.
int choose_device_index(const DeviceQuestion& question);

// Collective over the job: this rank's place among the ranks of its host that see the same devices
// (CUDA_VISIBLE_DEVICES). The rest of the question is left to the caller.
DeviceQuestion ask_for_device(Backend& host);

}  // namespace gantry
