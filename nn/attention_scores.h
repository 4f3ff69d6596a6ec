// The scores of queries and keys, and products by KV head. Every attention by plain products uses them.
#pragma once

#include <vector>

#include "gantry/nn/attention.h"

namespace gantry::nn {

// The factor of the product of query and key.
double scale_of_scores(const AttentionOptions& options, const torch::Tensor& query);

// Products of query heads with the KV heads that they share. No key is copied if this rank has all query
// heads of its KV heads.
class ByKeyHead {
 public:
  ByKeyHead(const HeadRange& heads, const HeadRange& key_heads);

  // Several query heads use one KV head, and all of them are on this rank.
  bool is_grouped() const { return has_all_heads_ && group_ > 1; }
  // [samples, heads, rows, size] times [samples, KV heads, size, columns], each head with its KV head.
  torch::Tensor product(const torch::Tensor& of_heads, const torch::Tensor& of_keys) const;
  // [samples, heads, rows, columns] transposed, times [samples, heads, rows, size], summed over the heads of
  // each KV head: [samples, KV heads, columns, size].
  torch::Tensor turned_product(const torch::Tensor& of_heads, const torch::Tensor& with) const;
  // repeated(): a KV head for each query head, copied if several share it. summed(): adds up the gradients of
  // these copies.
  torch::Tensor repeated(const torch::Tensor& of_keys) const;
  torch::Tensor summed(const torch::Tensor& of_heads) const;

 private:
  torch::Tensor index(const torch::Device& device) const;
  torch::Tensor folded(const torch::Tensor& of_heads) const;

  std::int64_t group_;                     // query heads per KV head
  std::int64_t key_heads_;                 // KV heads on this rank
  bool has_all_heads_;                     // this rank has all query heads of each KV head
  std::vector<std::int64_t> key_of_head_;  // per query head: index of its KV head on this rank
};

struct Scores {
  torch::Tensor values;  // [samples, heads, queries, keys]
  torch::Tensor bent;    // tanh of a soft cap; undefined: none
};
// scale q k^T, with slopes, bias and soft cap, before any mask. `places` [keys]: the positions of the keys in
// their sequence, used for slopes only.
Scores scores_of(const torch::Tensor& query, const torch::Tensor& key, const ByKeyHead& by,
                 const AttentionOptions& options, const torch::Tensor& places);

}  // namespace gantry::nn
