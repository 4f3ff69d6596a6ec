// The core of attention over the heads that a rank holds, and the rotary embedding.
#pragma once

#include <memory>

#include "gantry/nn/dropout.h"
#include "gantry/nn/key_value_cache.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// The heads of one rank.
struct HeadRange {
  std::int64_t first = 0;  // of the global heads
  std::int64_t count = 0;  // held here
  std::int64_t total = 0;
};

// Which of `total` heads of `head_size` features the segment of a column-split projection holds; all before shard().
HeadRange held_heads(const Linear& projection, std::int64_t head_size, std::int64_t total, std::size_t segment = 0);

struct SequencePart;

// What a query sees, and how its scores are made.
struct AttentionOptions {
  bool causal = false;
  torch::Tensor keep;              // bool [samples, tokens], cached ones first: keys that count; undefined: all
  KeyValueCache* cache = nullptr;  // earlier keys and values, which these ones join; not owned
  std::int64_t window = 0;         // with causal: a query sees itself and the window - 1 keys before it; 0: all
  double scale = 0;                // of q k^T; 0: 1 / sqrt(head size)
  double soft_cap = 0;             // scores become soft_cap * tanh(score / soft_cap); 0: as they are (Gemma 2)
  // [heads held]: a key at place j adds slope * j to its scores (ALiBi, Press et al., arXiv 2108.12409); undefined:
  // none.
  torch::Tensor slopes = {};
  // [heads held]: a score that each query's softmax has beside those of its keys, and that has no value (gpt-oss);
  // undefined: none.
  torch::Tensor sinks = {};
  // [heads held, queries, keys], added to the scores (T5's by distance); undefined: none. Where ranks share the
  // sequence: of the heads and queries that this rank attends with (nn/context_attention.h) and all keys, in order; not
  // with a cache.
  torch::Tensor bias = {};
  torch::Tensor documents = {};  // int [samples, tokens]: keys of a query's own count; undefined: all. Not with a cache
  // Ranks share the sequence, and these are this rank's tokens of it; null: all of them. Its masks and documents then
  // stand for `keep` and `documents`. With a cache it says which tokens of the text this rank keeps there.
  std::shared_ptr<const SequencePart> sequence = {};
};

// A number for each head: AttentionOptions::sinks. Parameter weight [heads] (zeros). Split as Column{}: those of the
// heads held here.
class SinksImpl : public torch::nn::Module, public Shardable {
 public:
  explicit SinksImpl(std::int64_t heads);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  torch::Tensor weight;

 private:
  std::int64_t heads_;
};
TORCH_MODULE(Sinks);

// The tokens that an attention mask [samples, tokens] of zeros and ones keeps; undefined where there is none, or the
// host knows (tensors/host_copy.h) that it keeps all of them.
torch::Tensor kept_tokens(const torch::Tensor& attention_mask);

// query [samples, heads, tokens, head size], key and value [samples, key heads, tokens, head size] -> query's shape:
// softmax(scale q k^T) v over the keys that count. Key heads are shared by equal groups of query heads
// (Ainslie et al., arXiv 2305.13245) and not copied for each of those; `heads` and `key_heads` say which ones are here.
// By the kernel that LibTorch has for them (flash, efficient) without dropout, cap, slopes, bias and sinks, else by
// plain products; the mask of dropout comes from `dropout`'s name by global head. Where ranks share the sequence it is
// collective over them, forward and backward.
torch::Tensor attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                        const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                        const DropoutImpl& dropout);

// [samples, tokens, heads * size] <-> [samples, heads, tokens, size]
torch::Tensor split_heads(const torch::Tensor& features, std::int64_t heads);
torch::Tensor merge_heads(const torch::Tensor& heads);

}  // namespace gantry::nn
