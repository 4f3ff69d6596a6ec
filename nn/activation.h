// Applies an activation by its name, to an input or to the gate of gated values.
#pragma once

#include <string>

#include <torch/types.h>

#include "gantry/nn/activation_names.h"

namespace gantry::nn {

// `name` is one of activation_names(). The result has the shape and dtype of `input`.
torch::Tensor activate(const torch::Tensor& input, const std::string& name);

// Returns activate(gate, name) * values, of equal shapes and dtypes. SiLU and GELU keep nothing but the gate and the
// values for the backward, and take one pass over the memory each way on CUDA devices (tensors/kernels/gated.h).
torch::Tensor gated(const torch::Tensor& gate, const torch::Tensor& values, const std::string& name);

// The same for a tensor whose last dimension is the gate followed by the values.
torch::Tensor gated_halves(const torch::Tensor& gate_and_values, const std::string& name);

}  // namespace gantry::nn
