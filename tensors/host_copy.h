// Host copies of tensors on a device, and reads of device memory.
//
// The rule for all of Gantry: the values of a batch are checked on the host, before the batch is copied to a
// device. A read of device memory waits until the device has completed all its work, so a step has only one
// (read_back). Code that checks or counts tokens or labels, or tests whether a mask hides any token, reads
// the tensor that on_host() returns. On the CPU that is the tensor itself. Tokens and labels that were
// computed on a device, or that the user passed there, are checked by the device (check_on_device).
#pragma once

#include <vector>

#include "gantry/tensors/tensor.h"

namespace gantry {

// Copies a host tensor to `device`. The result is contiguous. A copy to another device than the CPU goes
// through pinned memory, and the host does not wait for it.
torch::Tensor to_device(const torch::Tensor& tensor, torch::Device device);

// A number that grows with every in-place change of the tensor; 0 for inference tensors, which LibTorch does
// not count.
std::int64_t version_of(const torch::Tensor& tensor);

// States, during its lifetime, that `tensor` and its views have the values of `host`, a CPU tensor of the
// same shape and type. An in-place change of `tensor` ends this. No effect if `tensor` is on the CPU or not
// contiguous, or if `host` is undefined.
class HostCopy {
 public:
  HostCopy() = default;
  HostCopy(const torch::Tensor& tensor, const torch::Tensor& host);
  HostCopy(HostCopy&& other) noexcept;
  HostCopy& operator=(HostCopy&& other) noexcept;
  ~HostCopy();

 private:
  c10::StorageImpl* memory_ = nullptr;
};

// The numbers 0, 1, ..., count - 1, with a host copy during the lifetime of the object.
struct CountedNumbers {
  CountedNumbers(std::int64_t count, const torch::TensorOptions& options);
  torch::Tensor numbers;
  HostCopy of_host;
};

// Returns the values of `tensor` on the CPU: the tensor itself if it is on the CPU, otherwise a view of the
// host tensor of a HostCopy of any thread. Undefined if there is no such HostCopy.
torch::Tensor on_host(const torch::Tensor& tensor);

// Makes the device of `condition`, a tensor of bools, end all its work with an error unless all elements are
// true. The host does not wait: its next wait for the device throws. No effect on the meta device, whose
// tensors have no values.
void check_on_device(const torch::Tensor& condition, const char* message);

// Returns the values of all tensors, one after the other, with one read of their device. Visible in profiles.
std::vector<double> read_back(const std::vector<torch::Tensor>& tensors);

// Returns the value of a scalar, by read_back() unless it is on the CPU.
double number_of(const torch::Tensor& scalar);

}  // namespace gantry
