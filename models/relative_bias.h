// T5's bias of attention scores by the distance of a key from its query (Raffel et al., arXiv 1910.10683).
#pragma once

#include <torch/nn/module.h>

#include "gantry/nn/attention.h"

namespace gantry::models {

struct RelativeBuckets {
  bool bidirectional = true;  // false: keys after a query share the bucket of distance 0
  std::int64_t count = 32;
  std::int64_t max_distance = 128;  // keys at this distance or farther share a bucket
};

// The bucket of each key for each query, by their positions (int64): [queries, keys].
torch::Tensor relative_buckets(const RelativeBuckets& buckets, const torch::Tensor& queries, const torch::Tensor& keys);

// A number for each bucket and head, which all layers of a stack share. Parameter weight [buckets, heads].
// With OnHeads, every rank has the full parameter, and its gradient is a partial sum.
class RelativeBiasImpl : public torch::nn::Module, public Shardable {
 public:
  RelativeBiasImpl(const RelativeBuckets& buckets, std::int64_t heads);
  // The bias of `heads` for queries at positions int64 [queries] and the first `keys` keys:
  // [heads, queries, keys].
  torch::Tensor forward(const torch::Tensor& queries, std::int64_t keys, const nn::HeadRange& heads) const;
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  torch::Tensor weight;

 private:
  RelativeBuckets buckets_;
  ProcessGroup* summed_over_ = nullptr;
};
TORCH_MODULE(RelativeBias);

}  // namespace gantry::models
