// The three passes of a cross entropy over rows of logits. They read the logits in place: no copy of
// [rows, columns] in another type is made, and the gradient is the only tensor of that size. Operators of
// LibTorch's dispatcher (gantry::row_maximum_, gantry::row_sums_, gantry::loss_gradient_), with kernels for
// the CPU and for CUDA.
//
// logits [rows, columns] with adjacent columns. Results per row have the type sum_type(logits). Columns from
// `width` on are padding.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// float64 for float64, else float32.
torch::ScalarType sum_type(const torch::Tensor& logits);

// [rows]: each row's largest logit, or -infinity if width is 0.
torch::Tensor row_maximum(const torch::Tensor& logits, std::int64_t width);

// [3, rows], from the differences logit - largest: the sum of their exponentials, the label's difference,
// and, if `with_all`, the sum of the differences. `largest` [rows]. `labels` int64 [rows]: a column below
// width, or -1.
torch::Tensor row_sums(const torch::Tensor& logits, std::int64_t width, const torch::Tensor& largest,
                       const torch::Tensor& labels, bool with_all);

// The terms of the gradient. The probabilities are exp(logit - largest) / total.
struct LossGradient {
  std::int64_t width = 0;
  torch::Tensor largest, total;  // [rows]
  torch::Tensor labels;          // as above
  torch::Tensor weight;          // [rows]: factor of the probabilities; undefined: 1
  torch::Tensor scale;           // [rows]: factor of the full row
  double of_label = 1;           // subtracted from the label's column
  double of_all = 0;             // subtracted from each column
};
// [rows, columns] of the logits' type: (weight * probability - of_all - [label] of_label) * scale, and 0 for padding.
torch::Tensor loss_gradient(const torch::Tensor& logits, const LossGradient& terms);

}  // namespace gantry::kernels
