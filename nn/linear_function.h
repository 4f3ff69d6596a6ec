// The arithmetic of linear layers, sharded or not. One function computes all of them, so that every layout
// adds in the same order.
#pragma once

#include <optional>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/row_encoding.h"
#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// The communication of an input. Without a group there is none. With a group, the gradient of the input is
// summed over it. With gather_dim, the input is this rank's part along this dim: the forward gathers it, and
// its gradient is this rank's part of the sum.
struct LinearInput {
  ProcessGroup* group = nullptr;
  std::optional<int> gather_dim;
};

struct LinearWeight {
  torch::Tensor weight;                      // [out, in], or the records of a frozen weight (core/row_encoding.h)
  torch::Tensor bias;                        // [out] or undefined
  std::optional<RowEncoding> encoding = {};  // for records; the same one for all weights of a call
};

// The maximum number of weights of one call: query, key and value with an adapter each.
inline constexpr std::size_t kMostWeights = 6;

// x W^T + b for one to six weights that read the same input [..., in], with one gather in the forward and one
// reduction in the backward. If the forward sends in pieces (nn/row_pieces.h), a piece is gathered while the
// previous one is computed. The backward starts the collective of the input gradient, computes the weight
// gradients, and then waits. Gradients of leaves are added directly to their .grad, without a temporary of
// the weight's size. Gradients of weights that were computed from other tensors are returned.
std::vector<torch::Tensor> linear(const torch::Tensor& input, const std::vector<LinearWeight>& weights,
                                  const LinearInput& how);

// The gradient of a weight by which `rows` [n, in] were multiplied, see give_gradient(). `gradient`:
// [n, out], of the result.
torch::Tensor give_product_gradient(const torch::Tensor& weight, WeightGradientStore* store,
                                    const torch::Tensor& gradient, const torch::Tensor& rows);

}  // namespace gantry::nn
