// The rotary embedding of patches by their rows and columns.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry::models {

// Returns the angles [samples, patches, head_size / 2] of patches at `places` [samples, patches, 2]: the first half by
// rows, the second half by columns. Angle i of rows is row * theta^(-4 i / head_size), and angle i of columns is
// column * theta^(-(4 i + column_offset) / head_size).
torch::Tensor patch_angles(const torch::Tensor& places, std::int64_t head_size, double theta, torch::ScalarType type,
                           std::int64_t column_offset = 0);

// Rotates features i and i + size / 2 of each head by angle i. heads: [samples, heads, patches, size]. The
// angles are of the same samples, or of one sample.
torch::Tensor turned_by(const torch::Tensor& heads, const torch::Tensor& angles);

}  // namespace gantry::models
