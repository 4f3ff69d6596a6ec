// The tokens with the largest logits of a row, and their log-probabilities.
#pragma once

#include <cstdint>

#include "gantry/plugins/criterion.h"

namespace gantry {

struct TopTokens {
  torch::Tensor tokens;  // int64 [rows, k]
  torch::Tensor logs;    // [rows, k], float32 or wider
};

// The k largest log-probabilities of each row of `logits` [rows, columns], in descending order; of equal ones the
// lower tokens. `split`: the ranks with the other columns, of which only k each are gathered; null: none. Collective
// over its group.
TopTokens top_tokens(const torch::Tensor& logits, std::int64_t k, const SplitDim* split);

// One tensor of whole numbers [rows, 2 k]: the tokens, then the bits of the log-probabilities. It is int32 for float32,
// and int64 for float64. A batch entry of real numbers would be converted to the precision of the model.
torch::Tensor packed(const TopTokens& top);
TopTokens unpacked(const torch::Tensor& packed);

}  // namespace gantry
