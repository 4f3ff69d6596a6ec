#include "gantry/optimizers/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

// The elements of a gradient that this rank owns, as views: all elements that it steps, unless ranks share
// some.
std::vector<torch::Tensor> owned_parts(const GradientBuffers& gradients, std::size_t i,
                                       const Coordinates& coordinates) {
  const torch::Tensor gradient = gradients.sharded(i) ? gradients.owned_gradient(i) : gradients.gradient(i);
  const auto& placement = gradients.stepped_placement(i);
  if (!gradients.parameters()[i].placement.overlaps()) return {gradient};
  return common_views(gradient, held_slice(placement, coordinates), owned_slice(placement, coordinates));
}

}  // namespace

torch::Tensor part_norms(const GradientBuffers& gradients, const ProcessGroupMesh& mesh,
                         const std::vector<int>& held_stages, double p) {
  const auto& coordinates = mesh.coordinates();
  std::vector<torch::Tensor> parts;
  for (std::size_t i = 0; i < gradients.parameters().size(); ++i) {
    if (!gradients.trained(i) || gradients.parameters()[i].tensor.numel() == 0) continue;
    if (!gradients.stepped_placement(i).counted_by(coordinates, held_stages)) continue;
    for (const auto& part : owned_parts(gradients, i, coordinates))
      if (part.numel() > 0) parts.push_back(part);
  }
  if (parts.empty()) return torch::empty({0}, torch::kFloat64);
  torch::Tensor norms = torch::stack(at::_foreach_norm(parts, p)).to(torch::kFloat64);
  return gradients.left() == 1 ? norms : norms.mul_(gradients.left());
}

double gradient_norm(const std::vector<double>& part_norms, const ProcessGroupMesh& mesh, double p) {
  const bool infinite = std::isinf(p);
  double total = 0;
  for (const double norm : part_norms)  // max() would drop a NaN
    total = infinite ? (std::isnan(norm) || norm > total ? norm : total) : total + std::pow(norm, p);
  total = all_reduce_number(mesh.world_group(), total, infinite ? ReduceOp::kMax : ReduceOp::kSum);
  return infinite ? total : std::pow(total, 1 / p);
}

double gradient_norm(const GradientBuffers& gradients, const ProcessGroupMesh& mesh,
                     const std::vector<int>& held_stages, double p) {
  return gradient_norm(read_back({part_norms(gradients, mesh, held_stages, p)}), mesh, p);
}

std::string first_non_finite(const GradientBuffers& gradients, const ProcessGroupMesh& mesh) {
  const auto& coordinates = mesh.coordinates();
  std::vector<std::string> names;
  std::vector<torch::Tensor> finite;
  for (std::size_t i = 0; i < gradients.parameters().size(); ++i) {
    if (!gradients.trained(i)) continue;
    for (const auto& part : owned_parts(gradients, i, coordinates)) {
      names.push_back(gradients.parameters()[i].placement.name);
      finite.push_back(part.isfinite().all());
    }
  }
  const auto read = read_back(finite);
  const auto wrong = std::find(read.begin(), read.end(), 0.0);
  const std::string mine = wrong == read.end() ? "" : names[wrong - read.begin()];
  const auto found = all_gather_numbers(mesh.world_group(), mine.empty() ? 0 : 1);
  const auto first = std::find(found.begin(), found.end(), 1);
  if (first == found.end()) return "";
  const int rank = static_cast<int>(first - found.begin());
  return broadcast_text(mesh.world_group(), mine, rank) + " on " + mesh.mesh().describe_rank(rank);
}

double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

}  // namespace gantry
