// Modules and factors that a decoder's description can omit. Without them, the output is the input.
#pragma once

#include <string>

#include "gantry/models/register_at.h"
#include "gantry/nn/dropout.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

// Null without a path.
inline nn::Dropout dropout_at(torch::nn::Module& root, const std::string& path, double probability) {
  return path.empty() ? nn::Dropout(nullptr) : register_at(root, path, nn::Dropout(probability));
}

inline torch::Tensor dropped(nn::Dropout& dropout, const torch::Tensor& input) {
  return dropout ? dropout(input) : input;
}

// Multiplies by `scale`, rounded to float32 and then to the dtype of `input`, as transformers does.
inline torch::Tensor scaled(const torch::Tensor& input, double scale) {
  if (scale == 1) return input;
  return input * torch::tensor(static_cast<float>(scale)).to(input.scalar_type()).item();
}

inline torch::Tensor multiplied(const torch::Tensor& input, double scale) { return scale == 1 ? input : input * scale; }

}  // namespace gantry::models
