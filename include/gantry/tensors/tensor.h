// torch::Tensor and what describes one: element types, devices, shapes. For headers that name tensors and call nothing
// of LibTorch: <torch/torch.h> takes ten times as long to compile.
#pragma once

#include <ATen/core/Tensor.h>

// As <torch/types.h> says it.
namespace torch {
using namespace at;  // NOLINT(google-build-using-namespace)
}
