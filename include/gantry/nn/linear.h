// Linear, drop-in for torch::nn::Linear (same options, same parameter names), that can be sharded over tp in place.
#pragma once

#include <optional>

#include <torch/nn/modules/linear.h>

#include "gantry/nn/shard_style.h"

namespace gantry::nn {

class Linear;
struct LinearInput;
struct LinearWeight;

// forward: [..., in] -> [..., out]. After shard(Column): [..., in] -> [..., out local] (or out, gathered), the input's
// gradient is summed over tp; after shard(Row): [..., in local] -> [..., out], the output is summed over tp. Inputs and
// outputs that are sequence shards are gathered and reduce-scattered instead. The weight gradient is added straight
// into weight.mutable_grad(), so hooks on the weight see an undefined gradient.
class LinearImpl : public torch::nn::Module, public Shardable {
 public:
  LinearImpl(std::int64_t in_features, std::int64_t out_features)
      : LinearImpl(torch::nn::LinearOptions(in_features, out_features)) {}
  explicit LinearImpl(const torch::nn::LinearOptions& options);

  torch::Tensor forward(const torch::Tensor& input);
  void reset_parameters();  // as torch::nn::Linear's
  Placements shard(const ShardStyle& style, ProcessGroup& group) override;
  // Makes the weight the same parameter as another module's (a tied embedding), before sharding.
  void tie_weight(const torch::Tensor& other);
  void set_gather_output(bool gather);  // of a column-sharded layer

  const torch::nn::LinearOptions options;  // the global sizes
  torch::Tensor weight;                    // [out, in]
  torch::Tensor bias;                      // [out], undefined without

  // What is held along tp: replicated before shard().
  const Cut& weight_placement() const { return weight_placement_; }
  ProcessGroup* group() const { return group_; }  // null before shard()

 private:
  friend std::vector<torch::Tensor> together(const torch::Tensor& input, const std::vector<Linear>& layers);
  LinearInput input_layout() const;
  LinearWeight used_weight() const;
  torch::Tensor used_bias() const;
  torch::Tensor forward_row(const Row& row, const torch::Tensor& input) const;
  torch::Tensor gather_columns(const torch::Tensor& output) const;

  ProcessGroup* group_ = nullptr;
  std::optional<ShardStyle> style_;
  Cut weight_placement_;
};
TORCH_MODULE(Linear);

// The outputs of up to three layers that read the same input (query, key and value; gate and up), all column-sharded
// alike or none split: the input is gathered once and its gradient is summed once.
std::vector<torch::Tensor> together(const torch::Tensor& input, const std::vector<Linear>& layers);

}  // namespace gantry::nn
