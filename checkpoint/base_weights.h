// The weights of a Hugging Face directory, by the parameters of the model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "gantry/checkpoint/stored_model.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// The names of the family's tensors in the form that the files use.
std::vector<models::TensorName> forms_of(const StoredModel& model, const models::ModelFamily& family,
                                         const nlohmann::json& keys);
bool is_stored(const StoredModel& model, const models::TensorName& form);

// Returns the full weight with this shape and type.
torch::Tensor full_weight(const StoredModel& model, const models::TensorName& form, const Shape& shape,
                          torch::ScalarType type);

}  // namespace gantry
