// Linear, drop-in for torch::nn::Linear (same options, same parameter names), that can be sharded over tp in place.
#pragma once

#include <optional>

#include <torch/nn/modules/linear.h>

#include "gantry/nn/dropout.h"
#include "gantry/nn/shard_style.h"

namespace gantry::nn {

class Linear;
struct LinearInput;
struct LinearWeight;

// An adapter of low rank: the layer's output grows by scale * B A dropout(input), B [out, rank] and A [rank, in]. Hu et
// al., LoRA (arXiv 2106.09685).
struct AdapterOptions {
  std::int64_t rank = 8;
  double scale = 1;
  double dropout = 0;  // of what A reads, with masks that are the same in every layout
};

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
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  // Adds an adapter, once and before shard(): its parameters "lora_A" and "lora_B" get PEFT's initial values, deferred
  // (tensors/deferred_init.h), so that every layout has the same. What is trained beside is up to the caller. Sharded,
  // each factor is cut so that the adapter's output lies as the layer's does (core/adapter_split.h). UsageError.
  void add_adapter(const AdapterOptions& adapter);
  bool has_adapter() const { return lora_a.defined(); }
  // Makes the weight the same parameter as another module's (a tied embedding), before sharding.
  void tie_weight(const torch::Tensor& other);
  void set_gather_output(bool gather);  // of a column-sharded layer

  const torch::nn::LinearOptions options;  // the global sizes
  torch::Tensor weight;                    // [out, in]
  torch::Tensor bias;                      // [out], undefined without
  torch::Tensor lora_a, lora_b;            // undefined without an adapter

  // What is held along tp: replicated before shard().
  const ShardSpec& weight_placement() const { return weight_placement_; }
  ProcessGroup* group() const { return group_; }  // null before shard()

 private:
  friend std::vector<torch::Tensor> together(const torch::Tensor& input, const std::vector<Linear>& layers);
  LinearInput input_layout() const;
  LinearWeight used_weight() const;
  torch::Tensor used_bias() const;
  torch::Tensor used_lora_a() const;
  torch::Tensor used_lora_b() const;
  bool drops_input_of_adapter() const;
  void shard_dropout(const ShardStyle& style, const ShardAxes& axes);
  std::vector<LinearWeight> readers_of_input() const;
  torch::Tensor with_adapter(const torch::Tensor* outputs, const torch::Tensor& input);
  torch::Tensor forward_row(const Row& row, const torch::Tensor& input);
  torch::Tensor gather_columns(const torch::Tensor& output) const;

  ProcessGroup* group_ = nullptr;
  std::optional<ShardStyle> style_;
  ShardSpec weight_placement_;
  double adapter_scale_ = 1;
  Dropout adapter_dropout_{nullptr};  // null: nothing is dropped
};
TORCH_MODULE(Linear);

// The outputs of up to three layers that read the same input (query, key and value; gate and up), all column-sharded
// alike or none split: the input is gathered once and its gradient is summed once.
std::vector<torch::Tensor> together(const torch::Tensor& input, const std::vector<Linear>& layers);

}  // namespace gantry::nn
