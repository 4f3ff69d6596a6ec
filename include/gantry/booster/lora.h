// What of a model is trained: adapters of low rank in its place (LoRA, Hu et al., arXiv 2106.09685), or all but frozen
// parameters. build_model() does both for models of Gantry's families; these are for a model of one's own.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/core/config.h"

namespace gantry {

// Adds adapters to the gantry::nn::Linear layers that `lora` of the configuration names, before the model is boosted
// and before its optimizer is made, and freezes all parameters but theirs and those of lora.modules_to_save. Names are
// paths of modules, or ends of them, as Hugging Face has them where the model is of a family. Adapters begin with
// PEFT's values, the same in every layout; those of lora.path are read by load_weights(). Does nothing without lora, or
// where the model has adapters. Not collective. ConfigError for a name that matches nothing, or what has no adapters;
// for all-linear of a model whose policy is not in the configuration, since only it knows the output layer.
void add_lora(torch::nn::Module& model, const Config& config);

// Freezes the parameters that train.freeze names. ConfigError for a pattern that matches nothing, and where nothing is
// left to train.
void freeze_parameters(torch::nn::Module& model, const Config& config);

}  // namespace gantry
