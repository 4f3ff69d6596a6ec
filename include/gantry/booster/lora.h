// Selects which parameters are trained: LoRA adapters (Hu et al., arXiv 2106.09685), or all parameters except frozen
// ones. build_model() does both for Gantry's model families. Call these functions for your own models.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/core/config.h"

namespace gantry {

// Adds adapters to the gantry::nn modules that `lora` of the configuration names, and freezes all parameters except
// adapters and lora.modules_to_save. Call it before the model is boosted and before its optimizer is created. Names are
// module paths or their ends, as in the Hugging Face model for a model family. Adapters get PEFT's initial values,
// which are the same in every layout; load_weights() reads those of lora.path. Does nothing without `lora`, or if the
// model already has adapters. Not collective.
// Throws ConfigError if a name matches nothing, or matches a module that does not support adapters. Also throws
// ConfigError for all-linear if model.policy is not set, because only the policy knows the output layer.
void add_lora(torch::nn::Module& model, const Config& config);

// Freezes the parameters that match train.freeze. Throws ConfigError if a pattern matches nothing, or if no parameter
// is left to train.
void freeze_parameters(torch::nn::Module& model, const Config& config);

}  // namespace gantry
