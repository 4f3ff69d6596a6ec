// Activation recomputation (Chen et al., arXiv 1604.06174): the forward keeps only its input, and the backward runs it
// again.
#pragma once

#include <functional>
#include <vector>

#include "gantry/tensors/tensor.h"

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

// part(inputs), without keeping what lies between. Both forwards run under one RandomContext (outside a step: a fresh
// one for each call), so that dropout draws the same masks, and the backward gives inputs and parameters their
// gradients as the plain one would. Any number of inputs, of any type; undefined ones stay undefined. `part` reads
// nothing that changes until the backward, and outlives the graph by what it captures. Without gradients it is called
// as it is.
torch::Tensor recompute(const Recomputed& part, const std::vector<torch::Tensor>& inputs);

// The same for a part with several outputs, all of them defined.
using RecomputedAll = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;
std::vector<torch::Tensor> recompute_all(const RecomputedAll& part, const std::vector<torch::Tensor>& inputs);

}  // namespace gantry::nn
