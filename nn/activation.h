// Applies an activation by its name.
#pragma once

#include <string>

#include <torch/types.h>

#include "gantry/nn/activation_names.h"

namespace gantry::nn {

// `name` is one of activation_names(). The result has the shape and dtype of `input`.
torch::Tensor activate(const torch::Tensor& input, const std::string& name);

}  // namespace gantry::nn
