// Where in the job a forward runs, so that dropout draws the same mask in every layout (nn/forward.h hands it to
// modules).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/tensors/tensor.h"

namespace gantry {

struct RandomContext {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;  // counts optimizer steps
  std::int64_t first_sample =
      0;  // of this microbatch, counted over all calls of one optimizer step, in the global batch
  std::int64_t sequence_length = 0;  // of the whole sequence, where ranks hold shards of it; 0: not known
};

// A mask of `like`'s shape and dtype: 0 with probability p, else 1 / (1 - p). An element depends on (seed, step, name,
// its row-major index in the global tensor); `offset` is the place of the local tensor's first element, by dim, and
// `global` the global sizes (dim 0's is not used). With offsets 0 and global sizes equal to like's, the tensor is
// whole.
torch::Tensor dropout_mask(const torch::Tensor& like, double p, const std::string& name, const RandomContext& context,
                           const std::vector<std::int64_t>& offset, const std::vector<std::int64_t>& global);

}  // namespace gantry
