#include "gantry/plugins/split_backward.h"

#include <utility>

#include "gantry/tensors/libtorch.h"

namespace gantry {

void CutBackward::begin_forward(TensorDict* losses, std::function<void()> meanwhile) {
  losses_ = losses;
  meanwhile_ = std::move(meanwhile);
}

// Where nothing was computed behind the last cut, the stage gives what it would give without: an output whose memory is
// let go of once it is sent.
void CutBackward::end_forward(TensorDict& result) {
  std::vector<torch::Tensor*> given;
  for (TensorDict* tensors : {&result, losses_})
    for (auto& [name, tensor] : *tensors)
      if (tensor.defined() && tensor.requires_grad()) given.push_back(&tensor);
  losses_ = nullptr;
  meanwhile_ = {};
  if (cuts_.empty()) return;
  const auto end_of = [&cut = cuts_.back()](const torch::Tensor& leaf) -> const torch::Tensor* {
    for (std::size_t i = 0; i < cut.leaves.size(); ++i)
      if (cut.leaves[i].is_same(leaf)) return &cut.ends[i];
    return nullptr;
  };
  for (const torch::Tensor* tensor : given)
    if (!end_of(*tensor)) return;
  for (torch::Tensor* tensor : given) *tensor = *end_of(*tensor);
  cuts_.pop_back();
}

// Leaves of former cuts are cut again, though no part lies between: so gradients are added to each other in the order
// that they have in one piece.
torch::Tensor CutBackward::leaf_behind(const torch::Tensor& end, ShardSpec& cut) {
  if (!end.defined() || !end.requires_grad()) return end;
  torch::Tensor leaf = end.detach().requires_grad_();
  cut.ends.push_back(end);
  cut.leaves.push_back(leaf);
  return leaf;
}

TensorDict CutBackward::after_part(const TensorDict& state) {
  ShardSpec cut;
  TensorDict leaves;
  for (const auto& [name, tensor] : state) leaves.set(name, leaf_behind(tensor, cut));
  if (losses_)
    for (auto& [name, loss] : *losses_) loss = leaf_behind(loss, cut);
  cuts_.push_back(std::move(cut));
  meanwhile_();
  return leaves;
}

void CutBackward::begin(BackwardRoots from) {
  from_ = std::move(from);
  has_begun_ = true;
}

bool CutBackward::step() {
  if (!from_.roots.empty()) torch::autograd::backward(from_.roots, from_.seeds);
  from_ = {};
  if (cuts_.empty()) return false;
  const ShardSpec cut = std::move(cuts_.back());
  cuts_.pop_back();
  for (std::size_t i = 0; i < cut.leaves.size(); ++i) {
    const torch::Tensor gradient = cut.leaves[i].grad();
    if (!gradient.defined()) continue;
    from_.roots.push_back(cut.ends[i]);
    from_.seeds.push_back(gradient);
  }
  return true;
}

}  // namespace gantry
