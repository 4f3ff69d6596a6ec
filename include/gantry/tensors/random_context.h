// The position of a forward within the job, so that dropout masks do not depend on the layout (passed to modules by
// nn/forward.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/tensors/tensor.h"

namespace gantry {

struct RandomContext {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;  // number of the optimizer step
  // Index of the microbatch's first sample in the global batch, counted over all calls of one optimizer step.
  std::int64_t first_sample = 0;
  std::int64_t sequence_length = 0;  // length of the full sequence if ranks hold shards of it; 0: unknown
};

// Returns a dropout mask of `like`'s shape and dtype: 0 with probability p, otherwise 1 / (1 - p). An element depends
// only on seed, step, name and its row-major index in the global tensor. `offset`: position of the local tensor's first
// element, per dimension. `global`: the global sizes (that of dimension 0 is not used). For an unsharded tensor, pass
// offsets 0 and the sizes of `like`.
torch::Tensor dropout_mask(const torch::Tensor& like, double p, const std::string& name, const RandomContext& context,
                           const std::vector<std::int64_t>& offset, const std::vector<std::int64_t>& global);

}  // namespace gantry
