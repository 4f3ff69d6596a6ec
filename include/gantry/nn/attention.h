// The attention core over the heads that a rank holds.
#pragma once

#include <memory>

#include "gantry/nn/dropout.h"
#include "gantry/nn/key_value_cache.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// The range of heads that one rank holds.
struct HeadRange {
  std::int64_t first = 0;  // index among all heads
  std::int64_t count = 0;  // number of heads on this rank
  std::int64_t total = 0;  // number of heads on all ranks
};

// Returns the range of `total` heads of `head_size` features that a segment of a column-sharded projection holds; all
// heads before shard().
HeadRange held_heads(const Linear& projection, std::int64_t head_size, std::int64_t total, std::size_t segment = 0);

struct SequencePart;

// Options of the attention core: its mask, and the computation of the scores.
struct AttentionOptions {
  bool causal = false;
  bool cache_has_keys = false;  // another layer, whose keys and values these are, has appended them to `cache`
  torch::Tensor keep;  // bool [samples, tokens], including cached tokens: keys that are attended to; undefined: all
  KeyValueCache* cache = nullptr;  // earlier keys and values, to which the new ones are appended; not owned; null: none
  // A query attends to itself and the window - 1 keys before it and, without causal, the window - 1 keys after it; 0:
  // to all keys. Without causal it is not supported with a cache.
  std::int64_t window = 0;
  // Above 0: a query attends only to keys of its own chunk. The tokens of each document are counted in chunks of this
  // many; without documents, those of each sample from its first kept token on.
  std::int64_t chunk = 0;
  double scale = 0;     // factor of q k^T; 0: 1 / sqrt(head size)
  double soft_cap = 0;  // scores become soft_cap * tanh(score / soft_cap), as in Gemma 2; 0: unchanged
  // [local heads]: a key at position j adds slope * j to its scores (ALiBi, Press et al., arXiv 2108.12409); undefined:
  // none.
  torch::Tensor slopes = {};
  // [local heads]: an additional score in the softmax of each query, without a value (attention sinks, gpt-oss);
  // undefined: none.
  torch::Tensor sinks = {};
  // [local heads, queries, keys], added to the scores (T5's relative position bias); undefined: none. With context
  // parallelism: for the heads and queries that this rank computes (nn/context_attention.h) and all keys in order. Not
  // supported with a cache.
  torch::Tensor bias = {};
  // Int [samples, tokens]: a query attends only to keys of its own document; undefined: to all. Only chunks are
  // supported with a cache.
  torch::Tensor documents = {};
  // Int [samples, tokens]: with causal, tokens with the same number above 0 attend to each other in both directions
  // (the tokens of an image), to earlier ones within the window alone; undefined: none. Not supported with context
  // parallelism.
  torch::Tensor images = {};
  // With context parallelism: the part of the sequence that this rank's tokens are. Its masks and documents then
  // replace `keep` and `documents`. With a cache, it defines which tokens of the sequence this rank caches. Null: no
  // context parallelism.
  std::shared_ptr<const SequencePart> sequence = {};
};

// A learned number for each head, for AttentionOptions::sinks. Parameter weight [heads], initially zeros. With Column{}
// it is sharded like the heads.
class SinksImpl : public torch::nn::Module, public Shardable {
 public:
  explicit SinksImpl(std::int64_t heads);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  torch::Tensor weight;

 private:
  std::int64_t heads_;
};
TORCH_MODULE(Sinks);

// Returns the tokens that an attention mask [samples, tokens] of zeros and ones keeps. Undefined if there is no mask,
// or if the host knows that it keeps all tokens (tensors/host_copy.h). Throws InputError with `name` if the host knows
// of other values than 0 and 1.
torch::Tensor kept_tokens(const torch::Tensor& attention_mask, const std::string& name = "attention_mask");

// Computes softmax(scale q k^T) v over the keys that are attended to. query [samples, heads, tokens, head size], key
// and value [samples, KV heads, tokens, head size] -> the shape of query. `heads` and `key_heads`: the ranges that this
// rank holds. Each KV head is shared by an equal number of query heads (Ainslie et al., arXiv 2305.13245) and is not
// copied.
// Uses LibTorch's fused kernels (flash, memory-efficient), or separate matrix multiplications with dropout, a soft cap,
// slopes, a bias or sinks. Dropout masks depend on the name of `dropout` and the global head. With context parallelism
// it is collective over cp, forward and backward.
torch::Tensor attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                        const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                        const DropoutImpl& dropout);

// [samples, tokens, heads * size] <-> [samples, heads, tokens, size]
torch::Tensor split_heads(const torch::Tensor& features, std::int64_t heads);
torch::Tensor merge_heads(const torch::Tensor& heads);

}  // namespace gantry::nn
