// The names of a configured model's tensors in Hugging Face's files.
#pragma once

#include <vector>

#include <torch/nn/module.h>

#include "gantry/core/config.h"
#include "gantry/models/model_family.h"

namespace gantry {

// Empty for a model without a family.
std::vector<models::TensorName> family_names(const Config& config);

// Applies model.quantize to a model of a family, after add_lora(). Does nothing without the key.
void quantize_base(torch::nn::Module& model, const Config& config);

}  // namespace gantry
