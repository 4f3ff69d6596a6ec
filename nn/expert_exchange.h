// How rows of tokens reach the ranks that hold their experts, and how results come back. The bookkeeping is a value:
// counts first, then rows, then the same way back. Rows lie in one order whatever the ranks' tokens are: by expert, and
// within it by the rank that they come from and by their slots there.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/cut.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

struct ExpertExchange {
  ProcessGroup* group = nullptr;     // of the ranks that share a layer's experts; not owned
  Sizes sent, received;              // rows to each rank, and from each
  torch::Tensor by_expert, by_rank;  // int64 [rows received]: which of them stands where, by expert and back
  std::vector<std::int64_t> counts;  // rows of each expert that this rank holds
};

// `counts`: this rank's rows of every expert; `held`: by rank, which experts each of the ranks holds. Collective over
// the group, on the host.
ExpertExchange agree_on_rows(ProcessGroup& group, const std::vector<std::int64_t>& counts,
                             const std::vector<Range>& held, torch::Device device);
// rows [rows here, size], sorted by expert -> [rows of this rank's experts, size], and back. Both are collective over
// the group in forward and backward, also where nothing travels.
torch::Tensor rows_to_experts(const torch::Tensor& rows, const ExpertExchange& exchange);
torch::Tensor rows_from_experts(const torch::Tensor& rows, const ExpertExchange& exchange);

}  // namespace gantry::nn
