// The arithmetic of linear layers, split or not: one function, so that every layout adds in the same order.
#pragma once

#include <optional>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/row_encoding.h"
#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// How an input reaches the weights. Without a group: as it is. With one: its gradient is summed over the group; and
// where gather_dim is given, the input is this rank's part along it, is gathered, and gets its part of that sum.
struct LinearInput {
  ProcessGroup* group = nullptr;
  std::optional<int> gather_dim;
};

struct LinearWeight {
  torch::Tensor weight;                      // [out, in], or the records of a frozen weight (core/row_encoding.h)
  torch::Tensor bias;                        // [out] or undefined
  std::optional<RowEncoding> encoding = {};  // for records; the same one for all weights of a call
};

// The most weights of one call: query, key and value with an adapter each.
inline constexpr std::size_t kMostWeights = 6;

// x W^T + b for one to six weights that read the same input [..., in]: one gather forward, one sum backward. Where the
// forward sends in pieces (nn/row_pieces.h) a piece is gathered while the one before is computed. The backward starts
// the input gradient's collective before it computes the weights' gradients and waits after them; it adds gradients of
// leaves straight into their .grad (no temporary of the weight's size), and returns those of weights that were computed
// from others.
std::vector<torch::Tensor> linear(const torch::Tensor& input, const std::vector<LinearWeight>& weights,
                                  const LinearInput& how);

// The gradient of a weight by which `rows` [n, in] were multiplied, as give_gradient(); `gradient` [n, out].
torch::Tensor give_product_gradient(const torch::Tensor& weight, WeightGradientStore* store,
                                    const torch::Tensor& gradient, const torch::Tensor& rows);

}  // namespace gantry::nn
