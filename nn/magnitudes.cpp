#include "gantry/nn/magnitudes.h"

#include <limits>

#include "gantry/nn/autograd_collectives.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

torch::Tensor row_norms(const torch::Tensor& weight, const LowRank& change, ProcessGroup* group) {
  const torch::NoGradGuard no_grad;
  const auto type = weight.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  const torch::Tensor rows =
      torch::addmm(weight.to(type), change.b.to(type), change.a.to(type), /*beta=*/1, /*alpha=*/change.scale);
  const torch::Tensor norms = torch::linalg_vector_norm(rows, 2, {1});
  return group ? reduce_from_group(norms.square(), *group).sqrt() : norms;
}

// A row of zeros, such as the padding of a vocabulary, stays a row of zeros.
torch::Tensor magnitude_ratio(const torch::Tensor& magnitude, const torch::Tensor& norms) {
  return magnitude.to(norms.scalar_type()) / norms.clamp_min(std::numeric_limits<float>::min());
}

}  // namespace gantry::nn
