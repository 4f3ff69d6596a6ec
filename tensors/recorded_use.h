// Records the memory that operators use during the capture of a device graph (tensors/device_graph.h). It
// covers the operators on one device that this thread, and the autograd threads that run its backward, call
// during the lifetime of the object.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include <ATen/record_function.h>

#include "gantry/tensors/tensor.h"

namespace gantry {

class RecordedUse {
 public:
  // Throws UsageError if there is already an object for `device`.
  explicit RecordedUse(torch::Device device);
  ~RecordedUse();
  RecordedUse(const RecordedUse&) = delete;
  RecordedUse& operator=(const RecordedUse&) = delete;

  // The memory on the device that existed before the capture and that replays read or write. Keep it as long
  // as the graph can be replayed: it includes tensors that a module keeps between forwards (a rotary table)
  // and may release.
  std::vector<c10::Storage> used() const { return used_; }
  // True if an operator has drawn random numbers. A replay would repeat them, while Gantry's layers need new
  // ones.
  bool draws() const { return draws_; }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function);
  static void end(const at::RecordFunction& function, at::ObserverContext* context);
  void see(const torch::Tensor& tensor, bool is_given);

  torch::Device device_;
  at::CallbackHandle callback_ = 0;
  std::vector<c10::Storage> used_;
  // Weak pointers, so that no other storage gets the address of a destroyed one.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> seen_;
  bool draws_ = false;
};

}  // namespace gantry
