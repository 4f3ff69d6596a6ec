// A call's device tensors as the CPU's kernels take them: tensors of the CPU over the kernels' view of the same memory.
// Tensors that share a storage share it here too.
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
// Over a device's storage.
at::Tensor over_storage(const c10::Storage& storage, caffe2::TypeMeta type, at::IntArrayRef sizes,
                        at::IntArrayRef strides, std::int64_t offset);

class CpuView {
 public:
  // The CPU's view; of a tensor that is none of a device's the tensor itself.
  at::Tensor of(const at::Tensor& tensor);

  // What a kernel gave back as the device's: the tensor itself that was written to, a view of one that was given, or a
  // copy on `device`, which the operator `what` writes.
  at::Tensor back(const at::Tensor& result, c10::Device device, const std::string& what) const;

  // Tensors that the kernel resized: the device's follow, contents too.
  void follow_resized() const;

 private:
  struct Pair {
    at::Tensor device, cpu;
  };
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;  // of the CPU, by the device's
  std::vector<Pair> tensors_;
};

}  // namespace gantry::testing
