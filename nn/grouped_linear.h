// Linear layers of experts: rows that are sorted by expert, each run of them by its expert's own weight.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gantry/core/row_encoding.h"
#include "gantry/nn/grouped_products.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

struct GroupedWeight {
  torch::Tensor weight;                      // [experts, out, in], or the records of the rows of a frozen weight
  torch::Tensor bias;                        // [experts, out] or undefined
  bool input_is_first = false;               // the weight is [experts, in, out]
  std::optional<RowEncoding> encoding = {};  // for records, which are decoded for one expert at a time
};

// input [rows, in] -> [rows, out], where the first counts[0] rows are expert 0's, and so on. The gradients of leaves
// are added straight into their .grad, as those of nn::Linear; an expert without rows adds nothing, and its weight has
// a gradient all the same. `how`: absent, as choose_products has it; InternalError where that can't be.
torch::Tensor grouped_linear(const torch::Tensor& input, const GroupedWeight& weight,
                             const std::vector<std::int64_t>& counts, std::optional<GroupedProducts> how = {});

}  // namespace gantry::nn
