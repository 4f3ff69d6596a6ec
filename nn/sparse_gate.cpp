#include "gantry/nn/sparse_gate.h"

#include <cmath>

#include "gantry/nn/autograd_collectives.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

constexpr double kTiny = 1e-30;

// The mean over the features of all ranks. Every rank's features depend on it, so its gradient is the sum of all
// ranks'.
torch::Tensor mean_of_all(const torch::Tensor& features, const Linear& projection) {
  torch::Tensor sum = features.sum(-1, /*keepdim=*/true);
  if (projection->weight_placement().sharded())
    sum = copy_to_group(reduce_from_group(sum, *projection->group()), *projection->group());
  return sum / static_cast<double>(projection->options.out_features());
}

// The quantile `share` of the normal distribution, computed in float32 as in transformers.
double normal_quantile(double share) {
  const torch::Tensor twice = torch::tensor(2 * static_cast<float>(share) - 1, torch::kFloat32);
  return at::erfinv(twice).item<double>() * std::sqrt(2.0);
}

}  // namespace

torch::Tensor sparse_gate(const torch::Tensor& gate, double sparsity, const Linear& projection) {
  const torch::Tensor features = gate.to(at::promote_types(gate.scalar_type(), torch::kFloat32));
  const torch::Tensor centred = features - mean_of_all(features, projection);
  // The gradient of the root of 0, of equal features, would not be finite.
  const torch::Tensor deviation = mean_of_all(centred.square(), projection).clamp_min(kTiny).sqrt();
  return torch::relu(centred - deviation * normal_quantile(sparsity)).to(gate.scalar_type());
}

}  // namespace gantry::nn
