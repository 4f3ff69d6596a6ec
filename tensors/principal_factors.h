// The low-rank part of a weight from which an adapter can start (PiSSA, arXiv 2404.02948).
#pragma once

#include <cstdint>
#include <optional>

#include "gantry/tensors/tensor.h"

namespace gantry {

struct PrincipalFactors {
  torch::Tensor a, b;  // [rank, in] and [out, rank], float64 on the host
};

// Returns the factors whose product b a is the best approximation of `matrix` [out, in] of that rank: the singular
// vectors with the largest singular values, multiplied by the roots of these. The entry of each column of b with the
// largest absolute value is positive. Computed in float64 on the host, so that no layout changes it. `power_steps`: an
// approximation with this number of power iterations of a fixed random matrix (arXiv 0909.4061); unset: exact. Throws
// ConfigError if the rank is larger than a dimension.
PrincipalFactors principal_factors(const torch::Tensor& matrix, std::int64_t rank, std::optional<int> power_steps);

// PiSSA's factors of an adapter with this scale, rounded to `type`. The base is then weight - scale * b a.
PrincipalFactors adapter_factors(const torch::Tensor& weight, std::int64_t rank, double scale,
                                 std::optional<int> power_steps, torch::ScalarType type);

}  // namespace gantry
