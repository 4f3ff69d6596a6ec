#include "gantry/plugins/split_backward.h"

#include <utility>

#include "gantry/tensors/libtorch.h"

namespace gantry {

void SplitBackward::begin_forward(TensorDict* losses, std::function<void()> meanwhile) {
  losses_ = losses;
  meanwhile_ = std::move(meanwhile);
}

// If nothing follows the last split, return the original outputs instead of the leaves, so that their memory
// can be released after sending.
void SplitBackward::end_forward(TensorDict& result) {
  std::vector<torch::Tensor*> given;
  for (TensorDict* tensors : {&result, losses_})
    for (auto& [name, tensor] : *tensors)
      if (tensor.defined() && tensor.requires_grad()) given.push_back(&tensor);
  losses_ = nullptr;
  meanwhile_ = {};
  if (splits_.empty()) return;
  const auto end_of = [&split = splits_.back()](const torch::Tensor& leaf) -> const torch::Tensor* {
    for (std::size_t i = 0; i < split.leaves.size(); ++i)
      if (split.leaves[i].is_same(leaf)) return &split.ends[i];
    return nullptr;
  };
  for (const torch::Tensor* tensor : given)
    if (!end_of(*tensor)) return;
  for (torch::Tensor* tensor : given) *tensor = *end_of(*tensor);
  splits_.pop_back();
}

// Leaves of earlier splits are split again, even if no part is in between. Gradients are then added in the
// same order as without splits.
torch::Tensor SplitBackward::leaf_behind(const torch::Tensor& end, Split& split) {
  if (!end.defined() || !end.requires_grad()) return end;
  torch::Tensor leaf = end.detach().requires_grad_();
  split.ends.push_back(end);
  split.leaves.push_back(leaf);
  return leaf;
}

TensorDict SplitBackward::after_part(const TensorDict& state) {
  Split split;
  TensorDict leaves;
  for (const auto& [name, tensor] : state) leaves.set(name, leaf_behind(tensor, split));
  if (losses_)
    for (auto& [name, loss] : *losses_) loss = leaf_behind(loss, split);
  splits_.push_back(std::move(split));
  meanwhile_();
  return leaves;
}

void SplitBackward::begin(BackwardRoots from) {
  from_ = std::move(from);
  has_begun_ = true;
}

bool SplitBackward::step() {
  if (!from_.roots.empty()) torch::autograd::backward(from_.roots, from_.seeds);
  from_ = {};
  if (splits_.empty()) return false;
  const Split split = std::move(splits_.back());
  splits_.pop_back();
  for (std::size_t i = 0; i < split.leaves.size(); ++i) {
    const torch::Tensor gradient = split.leaves[i].grad();
    if (!gradient.defined()) continue;
    from_.roots.push_back(split.ends[i]);
    from_.seeds.push_back(gradient);
  }
  return true;
}

}  // namespace gantry
