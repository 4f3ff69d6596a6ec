#include "gantry/tensors/principal_factors.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <tuple>

#include <ATen/CPUGeneratorImpl.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::uint64_t kSeed = 1;  // the same random matrix for all weights of a shape

// The singular vectors and values of the largest ones: u [out, rank], s [rank], v [rank, in].
std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> largest(const torch::Tensor& matrix, std::int64_t rank,
                                                                std::optional<int> power_steps) {
  if (!power_steps) {
    const auto [u, s, v] = torch::linalg_svd(matrix, /*full_matrices=*/false);
    return {u.narrow(1, 0, rank), s.narrow(0, 0, rank), v.narrow(0, 0, rank)};
  }
  const auto orthogonal = [](const torch::Tensor& columns) { return std::get<0>(torch::linalg_qr(columns)); };
  at::Generator random = at::detail::createCPUGenerator(kSeed);
  torch::Tensor basis = orthogonal(torch::mm(matrix, torch::randn({matrix.size(1), rank}, random, torch::kFloat64)));
  for (int step = 0; step < *power_steps; ++step)
    basis = orthogonal(torch::mm(matrix, orthogonal(torch::mm(matrix.t(), basis))));
  const auto [u, s, v] = torch::linalg_svd(torch::mm(basis.t(), matrix), /*full_matrices=*/false);
  return {torch::mm(basis, u), s, v};
}

}  // namespace

PrincipalFactors principal_factors(const torch::Tensor& matrix, std::int64_t rank, std::optional<int> power_steps) {
  const torch::NoGradGuard no_grad;
  if (const std::int64_t most = std::min(matrix.size(0), matrix.size(1)); rank > most)
    throw ConfigError({"lora.r",
                       fmt::format("the rank is {}, but a weight [{}, {}] has only {} singular values", rank,
                                   matrix.size(0), matrix.size(1), most),
                       "a rank that no dimension of an adapted weight is below",
                       "reduce lora.r, or remove lora.init_lora_weights"});
  const auto [u, s, v] = largest(matrix.detach().to(torch::kCPU, torch::kFloat64), rank, power_steps);
  const torch::Tensor at_largest = u.gather(0, u.abs().argmax(0, /*keepdim=*/true));
  const torch::Tensor signs = torch::where(at_largest < 0, -torch::ones_like(at_largest), torch::ones_like(at_largest));
  const torch::Tensor roots = s.sqrt();
  return {(signs.t() * roots.unsqueeze(1) * v).contiguous(), (u * signs * roots).contiguous()};
}

PrincipalFactors adapter_factors(const torch::Tensor& weight, std::int64_t rank, double scale,
                                 std::optional<int> power_steps, torch::ScalarType type) {
  const auto [a, b] = principal_factors(weight, rank, power_steps);
  const double share = 1 / std::sqrt(scale);
  const auto rounded = [&](const torch::Tensor& factor) { return (factor * share).to(type).to(torch::kFloat64); };
  return {rounded(a), rounded(b)};
}

}  // namespace gantry
