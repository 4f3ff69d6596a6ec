// transformers' balancing loss of routers (load_balancing_loss_func), joint over all layers: experts * sum over e of
// (choices of e / rows) * (mean softmax probability of e), where rows are the counted tokens of every layer.
#pragma once

#include "gantry/nn/router.h"
#include "gantry/nn/stage_context.h"

namespace gantry::models {

// Sums over the layers, as entries of the state between their parts.
inline constexpr const char* kRouterChoices = "router_choices";              // [experts]
inline constexpr const char* kRouterProbabilities = "router_probabilities";  // [experts]

// Returns the sums of the state plus those of one layer. `keep`: bool [samples, tokens] for all tokens;
// undefined: all count.
TensorDict with_router_sums(const TensorDict& state, const nn::Routing& routing, const torch::Tensor& keep);
// Adds the loss, times the coefficient and the step's number of labels that count. The sum of the step's
// losses is divided by this number.
void add_router_loss(const StageContext& stage, const TensorDict& state, double coefficient, std::int64_t layers);

}  // namespace gantry::models
