// Products of rows, sorted by expert, with the matrices of their experts. Only this file chooses between
// LibTorch's grouped product for all experts at once and one product for each expert.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

enum class GroupedProducts { kByExpert, kAtOnce };

// The operands of such products: rows of `in` numbers, and of `out` numbers after the product.
struct GroupedOperands {
  c10::DeviceType device = torch::kCPU;
  torch::ScalarType type = torch::kFloat;
  std::int64_t in = 1, out = 1;
  bool aligned = true;  // both begin at multiples of 16 bytes, or are on the CPU
};
// `rows`: [rows, in]. `matrices`: [experts, in, out].
GroupedOperands operands_of(const torch::Tensor& rows, const torch::Tensor& matrices);
// Whether LibTorch's grouped product supports them: bfloat16, float16 or float32, aligned, in rows of a
// multiple of 16 bytes.
bool can_go_at_once(const GroupedOperands& operands);
// At once if LibTorch has a kernel for it: for bfloat16 on CUDA. Otherwise LibTorch's grouped product is a
// loop over the experts too, and on a device it needs a device-to-host read of their offsets.
GroupedProducts choose_products(const GroupedOperands& operands);

// The first counts[0] rows are expert 0's, and so on.
struct ExpertRows {
  std::vector<std::int64_t> counts;
  torch::Tensor ends;  // int32 [experts] on the device: the end of each expert's rows; undefined: one by one
};
ExpertRows expert_rows(std::vector<std::int64_t> counts, GroupedProducts how, torch::Device device);

// Calls `take` for each expert that has rows, with the first row and the number of rows.
template <class Take>
void for_each_expert(const std::vector<std::int64_t>& counts, const Take& take) {
  std::int64_t begin = 0;
  for (std::size_t expert = 0; expert < counts.size(); ++expert) {
    if (counts[expert] > 0) take(static_cast<std::int64_t>(expert), begin, counts[expert]);
    begin += counts[expert];
  }
}

// rows [rows, in] times the matrix [in, out] of each row's expert, which matrix_of(expert) returns, plus its bias from
// biases [experts, out], which may be undefined -> [rows, out]. One expert after the other.
template <class MatrixOf>
torch::Tensor rows_by_each_matrix(const torch::Tensor& rows, std::int64_t out, const MatrixOf& matrix_of,
                                  const torch::Tensor& biases, const ExpertRows& of) {
  torch::Tensor made = torch::empty({rows.size(0), out}, rows.options());
  for_each_expert(of.counts, [&](std::int64_t expert, std::int64_t begin, std::int64_t count) {
    torch::Tensor product = made.narrow(0, begin, count);
    const torch::Tensor in = rows.narrow(0, begin, count);
    if (biases.defined())
      at::addmm_out(product, biases.select(0, expert), in, matrix_of(expert));
    else
      at::mm_out(product, in, matrix_of(expert));
  });
  return made;
}

// rows [rows, in], matrices [experts, in, out], biases [experts, out] or undefined -> [rows, out].
torch::Tensor rows_by_matrices(const torch::Tensor& rows, const torch::Tensor& matrices, const torch::Tensor& biases,
                               const ExpertRows& of);
// Adds to into[expert] the product a^T b over the expert's rows: a [rows, m], b [rows, n], into
// [experts, m, n], which may have a wider type. The matrix of an expert without rows does not change.
void add_rows_by_rows(torch::Tensor& into, const torch::Tensor& a, const torch::Tensor& b, const ExpertRows& of);

}  // namespace gantry::nn
