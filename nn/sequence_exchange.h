// The exchange of tokens for heads between ranks that share a sequence (Ulysses, Jacobs et al., arXiv 2309.14509).
// Attention uses it with parallel.context_method ulysses, and recurrent mixers with every method.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/shard_spec.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// Before the exchange a rank has its own tokens of all heads, after it all tokens, in order, of its own heads.
struct SequenceExchange {
  ProcessGroup* group = nullptr;  // the ranks that exchange; not owned
  int token_dim = 1, head_dim = 2;
  // By rank: the positions of its tokens in the order in which it has them. Each token belongs to one rank.
  std::vector<std::vector<Range>> tokens;
  // By rank: the elements of the head dimension that it receives. Several ranks may receive the same element.
  std::vector<std::vector<Range>> heads;
  std::int64_t size = 0;  // elements of the head dimension before the exchange
};

// Both are collective over the group, forward and backward; each is the backward of the other. to_tokens() adds the
// elements of a head that several ranks have.
torch::Tensor to_heads(const torch::Tensor& input, const std::shared_ptr<const SequenceExchange>& exchange);
torch::Tensor to_tokens(const torch::Tensor& input, const std::shared_ptr<const SequenceExchange>& exchange);

// The elements of `ranges` along `dim`, in this order. A view if there is one range.
torch::Tensor elements_of(const torch::Tensor& input, int dim, const std::vector<Range>& ranges);

// The number of elements of `ranges`.
std::int64_t size_of(const std::vector<Range>& ranges);

}  // namespace gantry::nn
