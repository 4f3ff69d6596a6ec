// What operators use while a device is recorded (tensors/device_graph.h), for as long as the object lives on its
// thread: of this thread and of autograd's that run its backward, on one device.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include <ATen/record_function.h>

#include "gantry/tensors/tensor.h"

namespace gantry {

class RecordedUse {
 public:
  // One at a time for each device. UsageError where there is one.
  explicit RecordedUse(torch::Device device);
  ~RecordedUse();
  RecordedUse(const RecordedUse&) = delete;
  RecordedUse& operator=(const RecordedUse&) = delete;

  // The memory on the device that was there before, and that replays read or write again: it has to be kept as long as
  // they may come. What a module keeps from forward to forward (a rotary table) is among it, and the module may let go
  // of it.
  std::vector<c10::Storage> used() const { return used_; }
  // An operator has drawn random numbers, which a replay does not do anew as Gantry's layers do.
  bool draws() const { return draws_; }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function);
  static void end(const at::RecordFunction& function, at::ObserverContext* context);
  void see(const torch::Tensor& tensor, bool is_given);

  torch::Device device_;
  at::CallbackHandle callback_ = 0;
  std::vector<c10::Storage> used_;
  // Weak, so that no other storage gets the address of one that is gone.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> seen_;
  bool draws_ = false;
};

}  // namespace gantry
