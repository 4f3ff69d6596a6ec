#include "gantry/nn/grouped_products.h"

#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

constexpr std::int64_t kAlignment = 16;  // bytes, for LibTorch's grouped product

// Calls `take` for each run of experts that all have rows, with the first expert and their number.
template <class Take>
void for_each_run(const std::vector<std::int64_t>& counts, const Take& take) {
  const auto experts = static_cast<std::int64_t>(counts.size());
  for (std::int64_t first = 0; first < experts; ++first) {
    std::int64_t end = first;
    while (end < experts && counts[end] > 0) ++end;
    if (end > first) take(first, end - first);
    first = end;
  }
}

}  // namespace

GroupedOperands operands_of(const torch::Tensor& rows, const torch::Tensor& matrices) {
  const auto is_aligned = [](const torch::Tensor& tensor) {
    return tensor.is_cpu() || reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kAlignment == 0;
  };
  return {.device = rows.device().type(),
          .type = rows.scalar_type(),
          .in = matrices.size(1),
          .out = matrices.size(2),
          .aligned = is_aligned(rows) && is_aligned(matrices)};
}

bool can_go_at_once(const GroupedOperands& operands) {
  if (operands.type != torch::kBFloat16 && operands.type != torch::kHalf && operands.type != torch::kFloat)
    return false;
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(operands.type));
  return operands.in * bytes % kAlignment == 0 && operands.out * bytes % kAlignment == 0 && operands.aligned;
}

GroupedProducts choose_products(const GroupedOperands& operands) {
  const bool has_kernel = operands.device == torch::kCUDA && operands.type == torch::kBFloat16;
  return has_kernel && can_go_at_once(operands) ? GroupedProducts::kAtOnce : GroupedProducts::kByExpert;
}

ExpertRows expert_rows(std::vector<std::int64_t> counts, GroupedProducts how, torch::Device device) {
  ExpertRows of{.counts = std::move(counts), .ends = {}};
  if (how == GroupedProducts::kByExpert) return of;
  const torch::Tensor ends = torch::tensor(of.counts, torch::kInt64).cumsum(0).to(torch::kInt32);
  of.ends = device.is_cpu() ? ends : to_device(ends, device);
  return of;
}

torch::Tensor rows_by_matrices(const torch::Tensor& rows, const torch::Tensor& matrices, const torch::Tensor& biases,
                               const ExpertRows& of) {
  if (of.ends.defined() && rows.size(0) > 0) {
    torch::Tensor made = at::_grouped_mm(rows.contiguous(), matrices, of.ends);
    if (biases.defined())
      for_each_expert(of.counts, [&](std::int64_t expert, std::int64_t begin, std::int64_t count) {
        made.narrow(0, begin, count).add_(biases.select(0, expert));
      });
    return made;
  }
  const auto matrix_of = [&](std::int64_t expert) { return matrices.select(0, expert); };
  return rows_by_each_matrix(rows, matrices.size(2), matrix_of, biases, of);
}

void add_rows_by_rows(torch::Tensor& into, const torch::Tensor& a, const torch::Tensor& b, const ExpertRows& of) {
  if (of.ends.defined() && a.size(0) > 0) {
    const torch::Tensor products = at::_grouped_mm(a.contiguous().t(), b.contiguous(), of.ends);
    // The product of no rows is unspecified, so experts without rows are left out.
    for_each_run(of.counts, [&](std::int64_t first, std::int64_t experts) {
      into.narrow(0, first, experts).add_(products.narrow(0, first, experts));
    });
    return;
  }
  for_each_expert(of.counts, [&](std::int64_t expert, std::int64_t begin, std::int64_t count) {
    torch::Tensor part = into.select(0, expert);
    add_product(part, a.narrow(0, begin, count).t(), b.narrow(0, begin, count));
  });
}

}  // namespace gantry::nn
