// A projection of query, key and value whose rows are in groups (ProjectionRows::kPerGroup) or in blocks (kBlocks).
#pragma once

#include <vector>

#include "gantry/models/described/decoder_spec.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/linear.h"

namespace gantry::models {

// Query, key and value [..., features] from the output of the projection: this rank's rows of each, joined.
// Sets `queries` and `keys` to the heads of this rank.
std::vector<torch::Tensor> grouped_parts(nn::HeadRange& queries, nn::HeadRange& keys, const torch::Tensor& fused,
                                         const nn::Linear& projection, const AttentionSpec& attention);

}  // namespace gantry::models
