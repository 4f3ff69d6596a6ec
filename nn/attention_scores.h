// The scores of queries and keys, and products that go by key head: what every plain attention is made of.
#pragma once

#include <vector>

#include "gantry/nn/attention.h"

namespace gantry::nn {

// What query times key is multiplied with.
double scale_of_scores(const AttentionOptions& options, const torch::Tensor& query);

// Products of query heads with the key heads that they share. Where all heads of the key heads are here, no key is
// copied for them.
class ByKeyHead {
 public:
  ByKeyHead(const HeadRange& heads, const HeadRange& key_heads);

  // Several query heads use one key head, and all of them are here.
  bool is_grouped() const { return has_all_heads_ && group_ > 1; }
  // [samples, heads, rows, size] times [samples, key heads, size, columns], each head with its key head.
  torch::Tensor product(const torch::Tensor& of_heads, const torch::Tensor& of_keys) const;
  // [samples, heads, rows, columns] turned, times [samples, heads, rows, size], summed over the heads of each key head:
  // [samples, key heads, columns, size].
  torch::Tensor turned_product(const torch::Tensor& of_heads, const torch::Tensor& with) const;
  // A key head for each query head, copied where they share it; and the sums of their gradients.
  torch::Tensor repeated(const torch::Tensor& of_keys) const;
  torch::Tensor summed(const torch::Tensor& of_heads) const;

 private:
  torch::Tensor index(const torch::Device& device) const;
  torch::Tensor folded(const torch::Tensor& of_heads) const;

  std::int64_t group_;                     // query heads of a key head
  std::int64_t key_heads_;                 // held here
  bool has_all_heads_;                     // this rank has all query heads of each KV head
  std::vector<std::int64_t> key_of_head_;  // by index into the held ones
};

struct Scores {
  torch::Tensor values;  // [samples, heads, queries, keys]
  torch::Tensor bent;    // tanh of a soft cap; undefined: none
};
// scale q k^T, with slopes, bias and cap: before anything is left out. `places` [keys]: where the keys stand in their
// sequence; only slopes ask for it.
Scores scores_of(const torch::Tensor& query, const torch::Tensor& key, const ByKeyHead& by,
                 const AttentionOptions& options, const torch::Tensor& places);

}  // namespace gantry::nn
