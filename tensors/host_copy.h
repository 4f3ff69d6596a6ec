// What the host knows of numbers that lie on a device, and how it reads others back.
//
// The rule for all of Gantry: numbers of a batch are checked on the host, before it goes to a device. A look into a
// device's memory waits until the device has done all that it was given, which a step affords once (read_back). So
// whoever checks tokens or labels, counts them, or looks whether a mask hides anything, asks on_host() and looks at
// what the host has. On the CPU that is the tensor itself. Tokens and labels that were computed on a device, or passed
// there, are checked by the device (check_on_device).
#pragma once

#include <vector>

#include "gantry/tensors/tensor.h"

namespace gantry {

// A copy of a tensor of the host's, contiguous. To a device it goes through pinned memory, and nobody waits for it.
torch::Tensor to_device(const torch::Tensor& tensor, torch::Device device);

// Grows whenever the tensor is changed in place; 0 where LibTorch does not count.
std::int64_t version_of(const torch::Tensor& tensor);

// Remembers for its lifetime that `tensor`, and each view of it, has the numbers of `host`, a tensor on the CPU of the
// same shape and type; until `tensor` is changed in place. It knows nothing where `tensor` is on the CPU or not
// contiguous, or `host` is undefined.
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

// 0, 1, ..., count - 1, which the host knows for as long as this lives.
struct CountedNumbers {
  CountedNumbers(std::int64_t count, const torch::TensorOptions& options);
  torch::Tensor numbers;
  HostCopy of_host;
};

// The numbers of `tensor` on the CPU: the tensor itself where it lies there, else a view of what a HostCopy of any
// thread remembers, or undefined.
torch::Tensor on_host(const torch::Tensor& tensor);

// Has the device of `condition`, a tensor of bools, end all its work with an error unless all of it is true. The host
// does not wait: its next wait for the device throws. Nothing for a tensor without numbers (the meta device).
void check_on_device(const torch::Tensor& condition, const char* message);

// The numbers of all tensors, one after the other, read from their device at once. Seen by profilers.
std::vector<double> read_back(const std::vector<torch::Tensor>& tensors);

// A scalar: on the CPU it is read where it lies, else it is read back.
double number_of(const torch::Tensor& scalar);

}  // namespace gantry
