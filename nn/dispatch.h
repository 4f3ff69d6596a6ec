// Which rows of tokens go to which expert, and the way back. The bookkeeping is a value: a forward hands it on, and
// what is recomputed makes its own.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// Of tokens with `used` experts each. A slot is a choice of a token: slot token * used + k.
struct Dispatch {
  torch::Tensor slots;               // int64 [tokens * used]: the slots by expert, and within it in their own order
  torch::Tensor places;              // int64 [tokens * used]: where each slot is among them
  std::vector<std::int64_t> counts;  // rows of each expert
  std::int64_t used = 1;
};

// ids [tokens, used] of the experts that each token chose. On a device the counts are read back.
Dispatch dispatch_by_expert(const torch::Tensor& ids, std::int64_t experts);
// tokens [tokens, size] -> [tokens * used, size], sorted by expert.
torch::Tensor rows_by_expert(const torch::Tensor& tokens, const Dispatch& dispatch);
// Rows [tokens * used, size] that are sorted by expert, each multiplied by its slot's weight [tokens, used].
torch::Tensor weighted_rows(const torch::Tensor& rows, const torch::Tensor& weights, const Dispatch& dispatch);
// The experts' rows [tokens * used, size] and each slot's weight [tokens, used] -> [tokens, size]: the weighted rows of
// a token, added in the order of its slots.
torch::Tensor combined_rows(const torch::Tensor& rows, const torch::Tensor& weights, const Dispatch& dispatch);

}  // namespace gantry::nn
