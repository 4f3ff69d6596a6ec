// Dropout with masks that do not depend on the parallel layout.
#pragma once

#include <torch/nn/module.h>

#include "gantry/nn/shard_style.h"

namespace gantry::nn {

// Sets elements to zero with probability p in training, and scales the others by 1 / (1 - p). The mask depends only on
// the seed, the step, the global name and the position in the global tensor. Input: [samples, tokens, features...],
// replicated over tp, or with SequenceParallel this rank's part along its dimension.
class DropoutImpl : public torch::nn::Module, public Shardable, public Named {
 public:
  explicit DropoutImpl(double p);
  torch::Tensor forward(const torch::Tensor& input);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  // Declares that the input has only the features from `first` on, out of `full` features in the last dimension.
  void hold_features(std::int64_t first, std::int64_t total) { features_ = {first, total}; }
  bool depends_on_sequence() const override { return true; }
  void set_global_name(const std::string& name) override { name_in_model_ = name; }
  const std::string& global_name() const { return name_in_model_; }
  double p() const { return p_; }

 private:
  double p_;
  std::string name_in_model_;
  ProcessGroup* group_ = nullptr;  // group that shards dim_; null: the input is not sharded
  int dim_ = 1;
  std::pair<std::int64_t, std::int64_t> features_ = {0, 0};  // the arguments of hold_features(); {0, 0}: all features
};
TORCH_MODULE(Dropout);

}  // namespace gantry::nn
