// The models of a distillation that compares hidden states: train.objective.hidden_weight.
#pragma once

#include <torch/nn/module.h>

#include "gantry/core/config.h"

namespace gantry {

// With hidden_weight, lets the student return its hidden states. If their size is not that of the teacher, it gets a
// trained matrix that projects them, in the precision of the run; train.freeze and lora have no effect on this matrix.
// Reads config.json of the teacher. Throws ConfigError if one of the two models is not a decoder of a family.
void add_hidden_states(torch::nn::Module& model, const Config& config);

// Lets the teacher return its hidden states. Throws the same error.
void return_hidden_states(torch::nn::Module& teacher);

}  // namespace gantry
