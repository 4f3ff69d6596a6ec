#include "gantry/nn/context_attention.h"

#include <torch/torch.h>

#include "gantry/nn/attention_core.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/sequence_part.h"

namespace gantry::nn {
namespace {

// The cut is contiguous, so the keys of all ranks stand in order.
torch::Tensor all_gather_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                   const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                   const DropoutImpl& dropout) {
  const SequencePart& part = *options.sequence;
  const std::int64_t size = key.size(3);
  const torch::Tensor both = gather_to_group(torch::cat({key, value}, 3), *part.group, 2, part.cut.sizes());
  return attention_core(query, both.narrow(3, 0, size), both.narrow(3, size, value.size(3)), heads, key_heads, options,
                        dropout);
}

auto attention_by(ContextMethod method) {
  if (method == ContextMethod::kRing) return ring_attention;
  return method == ContextMethod::kAllGather ? all_gather_attention : ulysses_attention;
}

}  // namespace

torch::Tensor context_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                const DropoutImpl& dropout) {
  AttentionOptions whole = options;
  whole.keep = options.sequence->keep;
  whole.documents = options.sequence->documents;
  return attention_by(options.sequence->method)(query, key, value, heads, key_heads, whole, dropout);
}

}  // namespace gantry::nn
