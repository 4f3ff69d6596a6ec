// The RMS norm of Mamba-2, which normalises groups of features and multiplies by a gate.
#pragma once

#include "gantry/nn/norms.h"

namespace gantry::nn {

struct GatedNormOptions {
  std::int64_t heads = 1, head_size = 1;
  std::int64_t groups = 1;  // the mean of squares is over the features of heads / groups heads
  double eps = 1e-5;
  bool before_gate = false;  // norm(input) * silu(gate); otherwise norm(input * silu(gate))
};

// Parameter weight [heads * head_size]. After shard(Column): the local heads; if ranks share a group, its mean of
// squares is reduced over tp. Computes in at least float32.
class GatedNormImpl : public ShardedNormImpl {
 public:
  explicit GatedNormImpl(const GatedNormOptions& options);
  // input, gate: [..., local heads * head_size] -> the same shape. Collective over tp if ranks share a group.
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& gate);

 private:
  torch::Tensor normalised(const torch::Tensor& features) const;

  const GatedNormOptions options_;
};
TORCH_MODULE(GatedNorm);

}  // namespace gantry::nn
