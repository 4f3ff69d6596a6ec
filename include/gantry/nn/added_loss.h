// Losses that the model adds to that of the criterion, with a name for the metrics.
//
// Any module of any stage can add one, also within recomputed layers, where it counts once. There is one form for each
// kind of sum, which is right in every layout:
//
//   add_loss("size", hidden.square().sum(), Shard{1})         over this rank's tokens
//   add_loss("size", full.square().sum(), Replicate{})        over all tokens
//   add_loss("gates", gates.square().sum(), Partial{})        over this rank's heads or features
//   add_parameter_loss("table", table->weight, [](const torch::Tensor& part) { return part.square().sum(); })
//
// Like the criterion's sum, the first three are divided by the number of counted tokens of the step.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "gantry/nn/layout.h"

namespace gantry {

// Adds a scalar to the sum of the loss. `of`: the sum's part on this rank.
//   Shard{dim}: a sum over this rank's tokens, if sequence or context parallelism shards the sequence. With sequence
//     parallelism the sums are all-reduced over tp (collective over tp).
//   Replicate{}: a sum over all tokens. Throws ConfigError with context parallelism.
//   Partial{}: a sum over the heads or features that this rank has, between a Column and a Row layer, and over all
//     tokens of the rank. The sums are all-reduced over tp (collective over tp).
//   Not set: as Replicate{}; required with sequence and context parallelism.
// Throws UsageError for a tensor that is not a scalar, if `of` is missing with sequence parallelism, or if gradients
// are computed and losses are not collected.
void add_loss(const std::string& name, const torch::Tensor& loss, const std::optional<Layout>& of = std::nullopt);

// Like add_loss(), for a sum that is already over all tokens, heads and features. Throws UsageError for a tensor that
// is not a scalar, and if gradients are computed and losses are not collected.
void add_full_loss(const std::string& name, const torch::Tensor& loss);

// Adds a loss of the elements of a parameter alone to the mean loss, once per step: it is not divided by the number of
// tokens, and each forward of the step adds its share. `term` returns a scalar, the sum of a function of each element.
// With tensor parallelism its argument is the part of the parameter that this rank owns, which may be empty, and the
// values are all-reduced over tp (collective over tp).
// Call it in the forward of the module or layer that uses the parameter: with ZeRO 3, a parameter is unsharded only
// there. Outside of execute_pipeline the value is multiplied by Forward::step_share. Throws UsageError for a tensor
// that is not a parameter of the model, and if the number of counted tokens of the step is not known before the step.
// Throws ConfigError for parameters of experts that are distributed over ranks, and of a vocabulary that the stages
// share.
void add_parameter_loss(const std::string& name, const torch::Tensor& parameter,
                        const std::function<torch::Tensor(const torch::Tensor& part)>& term);

}  // namespace gantry
