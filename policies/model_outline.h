// The outline of a model of any class, from its policy and the shapes of its parameters.
#pragma once

#include "gantry/models/described/model_outline.h"
#include "gantry/policies/policy.h"

namespace gantry {

// `model` may be deferred, so that its parameters take no memory. Changes the model (Policy::preprocess). Throws the
// errors of the policy.
models::ModelOutline outline_of(torch::nn::Module& model, const Policy& policy);

}  // namespace gantry
