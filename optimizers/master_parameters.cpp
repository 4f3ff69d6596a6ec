#include "gantry/optimizers/master_parameters.h"

#include <algorithm>
#include <map>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using Units = std::map<void*, OptimizerUnit>;  // by parameter

bool is_low(const torch::Tensor& tensor) {
  return tensor.scalar_type() == torch::kBFloat16 || tensor.scalar_type() == torch::kFloat16;
}

Units units_of(const torch::optim::Optimizer& optimizer) {
  Units units;
  for (const auto& group : optimizer.param_groups())
    for (const auto& parameter : group.params())
      units[parameter.unsafeGetTensorImpl()] = optimizer_unit(optimizer, group);
  return units;
}

OptimizerUnit unit_of(const Units& units, const torch::Tensor& parameter) {
  const auto found = units.find(parameter.unsafeGetTensorImpl());
  return found == units.end() ? OptimizerUnit::kElement : found->second;
}

// The cost of a step is dominated by multiplications of a matrix with itself.
std::int64_t work_of(const Shape& shape) {
  const std::int64_t columns = shape.back(), rows = shape.size() > 1 ? shape[shape.size() - 2] : 1;
  return elements_of(shape) * std::min(rows, columns);
}

}  // namespace

bool MasterParameters::needed(const torch::optim::Optimizer& optimizer, const std::vector<HeldTensor>& parameters,
                              bool partitions) {
  const Units units = units_of(optimizer);
  return std::any_of(parameters.begin(), parameters.end(), [&](const HeldTensor& held) {
    return partitions || is_low(held.tensor) || divides_units(held.placement, unit_of(units, held.tensor));
  });
}

MasterParameters::MasterParameters(torch::optim::Optimizer& optimizer, GradientBuffers& gradients,
                                   const ProcessGroupMesh& mesh)
    : optimizer_(optimizer),
      gradients_(gradients),
      coordinates_(mesh.coordinates()),
      units_(mesh),
      made_(gradients.parameters().size()),
      is_low_(gradients.parameters().size()),
      unit_numbers_(gradients.parameters().size()) {
  for (const auto& held : gradients.parameters()) masters_.push_back(held.tensor);
  add_parameters();
}

void MasterParameters::add_parameters() {
  std::vector<std::size_t> fresh;
  for (std::size_t i = 0; i < masters_.size(); ++i)
    if (!made_[i] && gradients_.trained(i)) fresh.push_back(i);
  if (fresh.empty()) return;
  make_masters(fresh);
  std::map<void*, torch::Tensor> master_of;
  for (const std::size_t i : fresh) {
    made_[i] = true;
    master_of[gradients_.parameters()[i].tensor.unsafeGetTensorImpl()] = masters_[i];
  }
  for (auto& group : optimizer_.param_groups())
    for (auto& parameter : group.params())
      if (const auto master = master_of.find(parameter.unsafeGetTensorImpl()); master != master_of.end())
        parameter = master->second;
}

void MasterParameters::make_masters(const std::vector<std::size_t>& parameters) {
  const Units units = units_of(optimizer_);
  std::vector<GatheredUnits::Item> items;
  std::vector<std::size_t> unsharded;
  for (const std::size_t i : parameters) {
    const torch::Tensor& parameter = gradients_.parameters()[i].tensor;
    const Placement& stepped = gradients_.stepped_placement(i);
    const OptimizerUnit unit = unit_of(units, parameter);
    is_low_[i] = is_low(parameter);
    const auto dtype = is_low_[i] ? torch::kFloat32 : parameter.scalar_type();
    if (divides_units(stepped, unit)) {
      unsharded.push_back(i);
      items.push_back({.placement = stepped, .work = work_of(stepped.global_shape), .dtype = dtype});
      continue;
    }
    masters_[i] = gradients_.owned_values(i);
    if (unit != OptimizerUnit::kElement) masters_[i] = masters_[i].view(stepped.local_shape(coordinates_));
    if (is_low_[i]) masters_[i] = masters_[i].to(dtype);
    masters_[i].requires_grad_();
  }
  if (unsharded.empty()) return;
  const std::size_t first = units_.add(std::move(items));
  std::vector<GatheredUnits::Move> moves;
  for (std::size_t k = 0; k < unsharded.size(); ++k) {
    const std::size_t i = unsharded[k];
    unit_numbers_[i] = first + k;
    const auto options = gradients_.parameters()[i].tensor.options().requires_grad(false);
    masters_[i] =
        torch::empty(placement(i).local_shape(coordinates_), is_low_[i] ? options.dtype(torch::kFloat32) : options);
    moves.push_back(move(i, gradients_.owned_values(i), masters_[i]));
  }
  if (stale_ != Stale::kCopies) units_.bring_together(moves);  // otherwise the step or fill() fills them
  for (const std::size_t i : unsharded) masters_[i].requires_grad_();
}

GatheredUnits::Move MasterParameters::move(std::size_t parameter, torch::Tensor part, torch::Tensor full) const {
  return {.item = *unit_numbers_[parameter], .part = std::move(part), .full = std::move(full)};
}

Placement MasterParameters::placement(std::size_t parameter) const {
  return is_full(parameter) ? units_.held_placement(*unit_numbers_[parameter])
                            : gradients_.stepped_placement(parameter);
}

void MasterParameters::loaded() { stale_ = Stale::kUnsharded; }

void MasterParameters::refresh() { stale_ = Stale::kCopies; }

void MasterParameters::fill() {
  if (stale_ == Stale::kCopies) copy_from_parameters();
}

void MasterParameters::copy_from_parameters() {
  const torch::NoGradGuard no_grad;
  std::vector<GatheredUnits::Move> moves;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    if (!made_[i]) continue;
    const bool is_stale = is_low_[i] ? stale_ == Stale::kCopies && gradients_.has_values(i) : is_full(i);
    if (is_stale && is_full(i))
      moves.push_back(move(i, gradients_.owned_values(i), masters_[i].detach()));
    else if (is_stale)
      masters_[i].copy_(gradients_.owned_values(i).view_as(masters_[i]));
  }
  units_.bring_together(moves);
}

void MasterParameters::update() {
  if (stale_ != Stale::kNone) copy_from_parameters();
  stale_ = Stale::kNone;
}

void MasterParameters::before_step() {
  update();
  std::vector<GatheredUnits::Move> moves;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    if (!made_[i]) continue;
    torch::Tensor& gradient = masters_[i].mutable_grad();
    if (!gradients_.steps(i)) {
      gradient.reset();
    } else if (is_full(i)) {
      gradient = torch::empty_like(masters_[i]).detach();
      moves.push_back(move(i, gradients_.owned_gradient(i), gradient));
    } else {
      gradient = gradients_.owned_gradient(i).view_as(masters_[i]);
    }
  }
  units_.bring_together(moves);
}

void MasterParameters::write_values(std::size_t parameter, torch::Tensor& values) const {
  values.view({-1}).copy_(masters_[parameter].view({-1}));
}

void MasterParameters::after_step() {
  const torch::NoGradGuard no_grad;
  std::vector<GatheredUnits::Move> moves;
  std::vector<torch::Tensor> values, masters;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    if (is_full(i)) {
      moves.push_back(move(i, gradients_.owned_values(i), masters_[i]));
      masters_[i].mutable_grad().reset();  // it exists only during the step
    } else if (is_low_[i] && gradients_.has_values(i)) {
      values.push_back(gradients_.owned_values(i));
      masters.push_back(masters_[i].view({-1}));
    }
  }
  if (!values.empty()) at::_foreach_copy_(values, masters);  // a few kernels on a device
  units_.hand_out(moves);
  gradients_.gather_values();
}

}  // namespace gantry
