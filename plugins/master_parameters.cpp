#include "gantry/plugins/master_parameters.h"

#include <map>

namespace gantry {
namespace {

bool is_low(const torch::Tensor& tensor) {
  return tensor.scalar_type() == torch::kBFloat16 || tensor.scalar_type() == torch::kFloat16;
}

}  // namespace

bool MasterParameters::needed(const std::vector<HeldTensor>& parameters, bool shard_over_dp) {
  for (const auto& held : parameters)
    if (shard_over_dp || is_low(held.tensor)) return true;
  return false;
}

MasterParameters::MasterParameters(torch::optim::Optimizer& optimizer, GradientBuffers& gradients,
                                   const ProcessGroupMesh& mesh)
    : gradients_(gradients), mesh_(mesh) {
  std::map<void*, torch::Tensor> master_of;
  for (std::size_t i = 0; i < gradients.parameters().size(); ++i) {
    const torch::Tensor& parameter = gradients.parameters()[i].tensor;
    const bool trained = gradients.trained(i);
    torch::Tensor master = trained ? gradients.owned_values(i) : parameter;
    copies_.push_back(trained && is_low(parameter));
    if (copies_.back()) master = torch::zeros(master.sizes(), master.options().dtype(torch::kFloat32));
    if (trained) master.requires_grad_();
    masters_.push_back(master);
    master_of[parameter.unsafeGetTensorImpl()] = master;
  }
  for (auto& group : optimizer.param_groups())
    for (auto& parameter : group.params()) parameter = master_of.at(parameter.unsafeGetTensorImpl());
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
    if (gradients_.trained(i)) masters_[i].mutable_grad() = gradients_.owned_gradient(i);
}

void MasterParameters::after_step() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < masters_.size(); ++i)
    if (copies_[i]) gradients_.owned_values(i).copy_(masters_[i]);
  gradients_.gather_values();
}

torch::Tensor MasterParameters::gather(std::size_t parameter, const torch::Tensor& part) const {
  const torch::NoGradGuard no_grad;
  const auto shape = gradients_.parameters()[parameter].tensor.sizes();
  if (!gradients_.sharded(parameter)) return part.detach().view(shape);
  Sizes sizes;
  for (int replica = 0; replica < mesh_.size("dp"); ++replica)
    sizes.push_back(gradients_.owned(parameter, replica).size());
  return all_gather_along(mesh_["dp"], part.detach(), 0, sizes).view(shape);
}

void MasterParameters::scatter(std::size_t parameter, const torch::Tensor& whole, torch::Tensor part) const {
  const torch::NoGradGuard no_grad;
  const Range own = gradients_.owned(parameter, mesh_.coordinate("dp"));
  part.detach().copy_(whole.reshape({-1}).narrow(0, own.begin, own.size()));
}

}  // namespace gantry
