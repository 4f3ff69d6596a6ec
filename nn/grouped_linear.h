// Linear layers of experts. Rows are sorted by expert, and each run of rows is multiplied by the weight of
// its expert.
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

// input [rows, in] -> [rows, out], where the first counts[0] rows are expert 0's, and so on. Gradients of
// leaves are added directly to their .grad, as in nn::Linear. An expert without rows adds nothing, but its
// weight still has a gradient. `how`: absent: see choose_products(). Throws InternalError if `how` is not
// possible.
torch::Tensor grouped_linear(const torch::Tensor& input, const GroupedWeight& weight,
                             const std::vector<std::int64_t>& counts, std::optional<GroupedProducts> how = {});

}  // namespace gantry::nn
