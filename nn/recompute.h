// Activation recomputation (Chen et al., arXiv 1604.06174): the forward keeps only its input, and the backward runs it
// again.
#pragma once

#include <functional>

#include <torch/torch.h>

namespace gantry::nn {

// Whether attention's core is recomputed alone (Korthikanti et al., arXiv 2205.05198); read by a forward on this
// thread.
bool recomputes_attention();

class RecomputeAttentionGuard {
 public:
  explicit RecomputeAttentionGuard(bool on);
  ~RecomputeAttentionGuard();
  RecomputeAttentionGuard(const RecomputeAttentionGuard&) = delete;
  RecomputeAttentionGuard& operator=(const RecomputeAttentionGuard&) = delete;

 private:
  bool former_;
};

using Recomputed = std::function<torch::Tensor(const std::vector<torch::Tensor>&)>;

// part(inputs), without keeping what lies between. The backward runs it again under the same RandomContext, so that
// dropout draws the same masks, and gives parameters their gradients as the plain backward would. `part` reads nothing
// that changes until then, and outlives the graph by what it captures. Without gradients it is called as it is.
torch::Tensor recompute(const Recomputed& part, const std::vector<torch::Tensor>& inputs);

}  // namespace gantry::nn
