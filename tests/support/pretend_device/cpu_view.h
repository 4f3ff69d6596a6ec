// The device tensors of a call as arguments of CPU kernels: CPU tensors over the kernels' view of the same
// memory. Tensors that share a storage on the device also share it here.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "gantry/tensors/libtorch.h"
#include "race_checker.h"

namespace gantry::testing {

bool on_pretend_device(const at::Tensor& tensor);

// The bytes that a device tensor's elements span.
Access access_of(const at::Tensor& tensor, bool writes);

// A new tensor of a device, without contents.
at::Tensor new_device_tensor(c10::Device device, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);
// A tensor over an existing storage of a device.
at::Tensor over_storage(const c10::Storage& storage, caffe2::TypeMeta type, at::IntArrayRef sizes,
                        at::IntArrayRef strides, std::int64_t offset);

class CpuView {
 public:
  // Returns the CPU view of a device tensor. Any other tensor is returned unchanged.
  at::Tensor of(const at::Tensor& tensor);

  // Converts a result of a CPU kernel to a device tensor. An argument that the kernel wrote to is returned
  // itself, and a view of an argument becomes a view. Any other result is copied to `device`, which counts as
  // a write of operator `what`.
  at::Tensor back(const at::Tensor& result, c10::Device device, const std::string& what) const;

  // Gives the device tensors the sizes and contents of the CPU tensors that the kernel has resized.
  void follow_resized() const;

 private:
  struct Pair {
    at::Tensor device, cpu;
  };
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;  // device storage -> CPU storage
  std::vector<Pair> tensors_;
};

}  // namespace gantry::testing
