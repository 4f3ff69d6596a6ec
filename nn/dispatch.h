// Sorts the rows of tokens by expert, and combines the results. The bookkeeping is a value that a forward
// passes on. A recomputation creates its own.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// The dispatch of tokens with `used` experts each. A slot is one choice of a token: slot token * used + k.
struct Dispatch {
  torch::Tensor slots;               // int64 [tokens * used]: the slots, sorted by expert, then by number
  torch::Tensor places;              // int64 [tokens * used]: the index of each slot in `slots`
  std::vector<std::int64_t> counts;  // rows of each expert
  std::int64_t used = 1;
};

// ids [tokens, used]: the experts that each token chose. On a device, the counts are read back.
Dispatch dispatch_by_expert(const torch::Tensor& ids, std::int64_t experts);
// tokens [tokens, size] -> [tokens * used, size], sorted by expert.
torch::Tensor rows_by_expert(const torch::Tensor& tokens, const Dispatch& dispatch);
// Rows [tokens * used, size] that are sorted by expert, each multiplied by its slot's weight [tokens, used].
torch::Tensor weighted_rows(const torch::Tensor& rows, const torch::Tensor& weights, const Dispatch& dispatch);
// The experts' rows [tokens * used, size] and each slot's weight [tokens, used] -> [tokens, size]: the weighted rows of
// a token, added in the order of its slots.
torch::Tensor combined_rows(const torch::Tensor& rows, const torch::Tensor& weights, const Dispatch& dispatch);

}  // namespace gantry::nn
