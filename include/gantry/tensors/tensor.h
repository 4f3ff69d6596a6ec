// torch::Tensor, element types, devices and shapes, for headers that name tensors without calling LibTorch. Including
// <torch/torch.h> takes ten times as long to compile.
#pragma once

#include <ATen/core/Tensor.h>

// The same declaration as in <torch/types.h>.
namespace torch {
using namespace at;  // NOLINT(google-build-using-namespace)
}
