// Chooses the layers of a model that are in memory in 4 or 8 bits (`model.quantize`).
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/core/row_encoding.h"

namespace gantry::models {

// Quantises the gantry::nn::Linear layers, with fp8 also the gantry::nn::Experts, and with mxfp4 only the latter.
// Exceptions are the output layers `outputs` (module names), heads for labels, layers that are trained, and layers that
// share their weight. Call it after adapters were added and parameters frozen. With `trains` false, no layer counts as
// trained. Throws ConfigError if the model has no such layer.
void quantize_layers(torch::nn::Module& model, WeightCode code, const std::vector<std::string>& outputs, bool trains);

// The linear layers that quantize_layers() has quantised, and the other linear layers and routers.
struct CodedModules {
  std::vector<std::string> coded, others;
};
CodedModules coded_modules(const torch::nn::Module& model);

}  // namespace gantry::models
