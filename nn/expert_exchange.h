// Sends rows of tokens to the ranks that hold their experts, and the results back. Counts are exchanged
// first, then rows. The bookkeeping is a value, and the results use it for the way back. Rows have the same
// order for every distribution of the tokens: by expert, then by source rank, then by slot on this rank.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/shard_spec.h"
#include "gantry/nn/dispatch.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

struct ExpertExchange {
  ProcessGroup* group = nullptr;     // the ranks that share a layer's experts; not owned
  Sizes sent, received;              // numbers of rows to each rank, and from each rank
  torch::Tensor by_expert, by_rank;  // int64 [rows received]: the order by expert, and its inverse
  std::vector<std::int64_t> counts;  // rows of each expert that this rank holds
};

// `counts`: this rank's number of rows for every expert. `held`: the experts that each rank holds. Collective
// over the group, on the host.
ExpertExchange agree_on_rows(ProcessGroup& group, const std::vector<std::int64_t>& counts,
                             const std::vector<Range>& held, torch::Device device);

struct TokenExchange;

// Rows in flight. Computations between the call that sent them and wait() overlap with the transfer. In the
// backward, wait() sends the gradients, and the call that sent the rows waits for them, after the backward of
// these computations.
class PendingTokens {
 public:
  PendingTokens(torch::Tensor ticket, c10::intrusive_ptr<TokenExchange> travel) noexcept;
  PendingTokens(PendingTokens&& other) noexcept;
  PendingTokens& operator=(PendingTokens&& other) noexcept;
  ~PendingTokens();
  // Returns the rows. Call it once.
  torch::Tensor wait();
  // A tensor without values, which marks the exchange in the graph. The graph may be split there.
  const torch::Tensor& ticket() const { return ticket_; }
  void set_ticket(const torch::Tensor& ticket) { ticket_ = ticket; }

 private:
  torch::Tensor ticket_;
  c10::intrusive_ptr<TokenExchange> travel_;
};

// rows [rows here, size], sorted by expert -> [rows of this rank's experts, size], and back. Both are
// collective over the group in forward and backward, even if a rank has no rows.
PendingTokens rows_to_experts(const torch::Tensor& rows, const ExpertExchange& exchange);
PendingTokens rows_from_experts(const torch::Tensor& rows, const ExpertExchange& exchange);

// The state of a forward of experts between its steps.
struct DispatchedExperts {
  Dispatch dispatch;
  ExpertExchange exchange;
  PendingTokens rows;
  std::vector<std::int64_t> shape;  // shape of the tokens
};

}  // namespace gantry::nn
