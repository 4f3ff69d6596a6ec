// Noise on embeddings in training: NEFTune (Jain et al., arXiv 2310.05914).
#pragma once

#include <torch/nn/module.h>

#include "gantry/nn/shard_style.h"

namespace gantry::nn {

// Adds uniform noise from -b to b, b = alpha / sqrt(tokens of a sample * features), in training. An element
// depends only on (seed, step, global name, position in the global tensor). Input
// [samples, tokens, features], in full on every tp rank, or this rank's part along the dim of
// SequenceParallel. If ranks share sequences, it has this rank's tokens.
class EmbeddingNoiseImpl : public torch::nn::Module, public Shardable, public Named {
 public:
  explicit EmbeddingNoiseImpl(double alpha);
  torch::Tensor forward(const torch::Tensor& input);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  bool depends_on_sequence() const override { return true; }
  void set_global_name(const std::string& name) override { name_in_model_ = name; }

 private:
  double alpha_;
  std::string name_in_model_;
  ProcessGroup* group_ = nullptr;  // over which tokens are sharded; null: not sharded
};
TORCH_MODULE(EmbeddingNoise);

}  // namespace gantry::nn
