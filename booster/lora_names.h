// The names of a configured model's tensors in Hugging Face's files.
#pragma once

#include <vector>

#include "gantry/core/config.h"
#include "gantry/models/model_family.h"

namespace gantry {

// Empty for a model without a family.
std::vector<models::TensorName> family_names(const Config& config);

}  // namespace gantry
