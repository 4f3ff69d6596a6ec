// Dropout whose masks are the same in every layout.
#pragma once

#include <torch/nn/module.h>

#include "gantry/nn/shard_style.h"

namespace gantry::nn {

// Zeroes elements with probability p in training and scales the rest by 1 / (1 - p). The mask depends on (seed, step,
// global name, place in the global tensor) alone. Input [samples, tokens, features...], replicated over tp, or this
// rank's part of it along the dim of SequenceParallel.
class DropoutImpl : public torch::nn::Module, public Shardable, public Named {
 public:
  explicit DropoutImpl(double p);
  torch::Tensor forward(const torch::Tensor& input);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  // The input is features `first` to `first` + its own of `whole` ones, the last dim.
  void hold_features(std::int64_t first, std::int64_t whole) { features_ = {first, whole}; }
  bool depends_on_sequence() const override { return true; }
  void set_global_name(const std::string& name) override { name_in_model_ = name; }
  const std::string& global_name() const { return name_in_model_; }
  double p() const { return p_; }

 private:
  double p_;
  std::string name_in_model_;
  ProcessGroup* group_ = nullptr;  // over which dim_ is cut; null: whole
  int dim_ = 1;
  std::pair<std::int64_t, std::int64_t> features_ = {0, 0};  // first and whole; 0: all of them
};
TORCH_MODULE(Dropout);

}  // namespace gantry::nn
