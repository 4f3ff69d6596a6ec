// How rows of tokens reach the ranks that hold their experts, and how results come back. The bookkeeping is a value:
// counts first, then rows, then the same way back. Rows lie in one order whatever the ranks' tokens are: by expert, and
// within it by the rank that they come from and by their slots there.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/shard_spec.h"
#include "gantry/nn/dispatch.h"
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

struct TokenExchange;

// Rows under way. What is computed between the call that sent them and wait() hides how long they travel. In the
// backward their gradients leave with wait()'s, and are waited for behind what hangs on those computations.
class PendingTokens {
 public:
  PendingTokens(torch::Tensor ticket, c10::intrusive_ptr<TokenExchange> travel) noexcept;
  PendingTokens(PendingTokens&& other) noexcept;
  PendingTokens& operator=(PendingTokens&& other) noexcept;
  ~PendingTokens();
  // The rows, once.
  torch::Tensor wait();
  // Has no values: marks the dispatch in the graph, which may be split there.
  const torch::Tensor& ticket() const { return ticket_; }
  void set_ticket(const torch::Tensor& ticket) { ticket_ = ticket; }

 private:
  torch::Tensor ticket_;
  c10::intrusive_ptr<TokenExchange> travel_;
};

// rows [rows here, size], sorted by expert -> [rows of this rank's experts, size], and back. Both are collective over
// the group in forward and backward, also where nothing travels.
PendingTokens rows_to_experts(const torch::Tensor& rows, const ExpertExchange& exchange);
PendingTokens rows_from_experts(const torch::Tensor& rows, const ExpertExchange& exchange);

// What a forward of experts knows between its steps.
struct DispatchedExperts {
  Dispatch dispatch;
  ExpertExchange exchange;
  PendingTokens rows;
  std::vector<std::int64_t> shape;  // of the tokens
};

}  // namespace gantry::nn
