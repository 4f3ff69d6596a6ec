// A projection of query, key and value whose rows are in groups (ProjectionRows::kPerGroup) or in blocks (kBlocks).
#pragma once

#include <vector>

#include "gantry/models/described/decoder_spec.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/linear.h"

namespace gantry::models {

// Query, key and value [..., features] of what the projection gives: this rank's rows of each, put together. `queries`
// and `keys` become the heads that are held here.
std::vector<torch::Tensor> grouped_parts(nn::HeadRange& queries, nn::HeadRange& keys, const torch::Tensor& fused,
                                         const nn::Linear& projection, const AttentionSpec& attention);

}  // namespace gantry::models
