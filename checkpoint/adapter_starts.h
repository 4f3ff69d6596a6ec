// The values of adapters that start from the weights of the base.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gantry/core/placement.h"
#include "gantry/core/row_encoding.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// Sets DoRA's magnitudes among `held` to the norms of the rows of the base's weights, and the trained tokens to the
// rows of the table. The weights are read from the files in full, one at a time. `held` also has the weights. `tokens`:
// lora.trainable_token_indices; the other parameters are those of load_hugging_face(). Throws InputError if the files
// lack a weight.
void load_adapter_starts(const std::string& directory, const models::ModelFamily& family, const nlohmann::json& keys,
                         const std::vector<int>& tokens, const std::vector<HeldTensor>& held,
                         const Coordinates& coordinates, const std::function<void(std::uint64_t)>& loaded,
                         std::optional<WeightCode> code);

}  // namespace gantry
