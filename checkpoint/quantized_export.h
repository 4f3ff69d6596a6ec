// Exported models in bitsandbytes' layout (ExportOptions::quantize).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "gantry/checkpoint/hugging_face.h"

namespace gantry {

// Returns the tensors of a model in which the linear layers of model.quantize have codes and scales, and states this in
// `config`, the model's config.json. Codes are the ones that model.quantize has in memory. Throws UsageError for
// a model with an image encoder, and if the weights of these layers have another form in the files than in the model.
std::vector<ExportTensor> quantized_tensors(const std::vector<ExportTensor>& tensors, nlohmann::json& config,
                                            const ExportOptions& options);

}  // namespace gantry
