#include "gantry/optimizers/master_parameters.h"

#include <map>

#include <torch/torch.h>

namespace gantry {
namespace {

bool is_low(const torch::Tensor& tensor) {
  return tensor.scalar_type() == torch::kBFloat16 || tensor.scalar_type() == torch::kFloat16;
}

}  // namespace

bool MasterParameters::needed(const std::vector<HeldTensor>& parameters, bool partitions) {
  for (const auto& held : parameters)
    if (partitions || is_low(held.tensor)) return true;
  return false;
}

MasterParameters::MasterParameters(torch::optim::Optimizer& optimizer, GradientBuffers& gradients)
    : optimizer_(optimizer),
      gradients_(gradients),
      made_(gradients.parameters().size()),
      copies_(gradients.parameters().size()) {
  for (const auto& held : gradients.parameters()) masters_.push_back(held.tensor);
  bring_in();
}

void MasterParameters::bring_in() {
  std::map<void*, torch::Tensor> master_of;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    if (made_[i] || !gradients_.trained(i)) continue;
    made_[i] = true;
    const torch::Tensor parameter = masters_[i];
    masters_[i] = gradients_.owned_values(i);
    copies_[i] = is_low(parameter);
    if (copies_[i]) masters_[i] = masters_[i].to(torch::kFloat32);
    masters_[i].requires_grad_();
    master_of[parameter.unsafeGetTensorImpl()] = masters_[i];
  }
  if (master_of.empty()) return;
  for (auto& group : optimizer_.param_groups())
    for (auto& parameter : group.params())
      if (const auto master = master_of.find(parameter.unsafeGetTensorImpl()); master != master_of.end())
        parameter = master->second;
}

void MasterParameters::copy_from_parameters() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < masters_.size(); ++i)
    if (copies_[i]) masters_[i].copy_(gradients_.owned_values(i));
}

void MasterParameters::before_step() {
  if (fresh_) copy_from_parameters();
  fresh_ = false;
  for (std::size_t i = 0; i < masters_.size(); ++i)
    if (gradients_.trained(i))
      masters_[i].mutable_grad() = gradients_.steps(i) ? gradients_.owned_gradient(i) : torch::Tensor();
}

void MasterParameters::after_step() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < masters_.size(); ++i)
    if (copies_[i]) gradients_.owned_values(i).copy_(masters_[i]);
  gradients_.gather_values();
}

}  // namespace gantry
