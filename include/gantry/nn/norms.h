// Norms over the last dimension. With SequenceParallel their input is this rank's part of the tokens, with OnHeads this
// rank's heads; the gradients of their parameters are then partial sums over tp.
#pragma once

#include <vector>

#include <torch/nn/modules/normalization.h>

#include "gantry/nn/shard_style.h"

namespace gantry::nn {

// Base class of norms with replicated parameters, for full activations or sequence shards.
class NormImpl : public torch::nn::Module, public Shardable {
 public:
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;

 protected:
  // Returns the parameter; its gradient is reduced over tp in the backward if that is requested.
  torch::Tensor used(const torch::Tensor& parameter) const;

 private:
  ProcessGroup* summed_over_ = nullptr;
};

enum class LayerNormParameters { kWeightAndBias, kWeight, kNone };
// The scale of a norm: its weight, 1 + weight (Gemma, Nemotron), or 1 without a weight (Llama 4).
enum class NormScale { kWeight, kOnePlusWeight, kOne };

// A norm with the interface of torch::nn::LayerNorm over one dimension. Parameters weight [size] and bias [size]
// (initially zeros); undefined if the norm lacks them. The initial scale is 1.
class LayerNormImpl : public NormImpl {
 public:
  explicit LayerNormImpl(std::int64_t size, double eps = 1e-5,
                         LayerNormParameters parameters = LayerNormParameters::kWeightAndBias,
                         NormScale scale = NormScale::kWeight);
  torch::Tensor forward(const torch::Tensor& input);
  torch::Tensor weight, bias;

 private:
  std::int64_t size_;
  double eps_;
  NormScale scale_;
};
TORCH_MODULE(LayerNorm);

// x / sqrt(mean(x^2) + eps) * scale (Zhang & Sennrich, arXiv 1910.07467). Parameter weight [size], except with kOne;
// the initial scale is 1. 1 + weight is computed in at least float32.
class RmsNormImpl : public NormImpl {
 public:
  explicit RmsNormImpl(std::int64_t size, double eps = 1e-6, NormScale scale = NormScale::kWeight);
  torch::Tensor forward(const torch::Tensor& input);
  torch::Tensor weight;  // undefined with kOne

 private:
  std::int64_t size_;
  double eps_;
  NormScale scale_;
};
TORCH_MODULE(RmsNorm);

// Base class of norms on the output of a column-sharded Linear. Its parameter weight (initially ones) is sharded like
// the rows of this Linear.
class ShardedNormImpl : public torch::nn::Module, public Shardable {
 public:
  // `name`: for errors.
  ShardedNormImpl(const char* name, std::vector<std::int64_t> shape);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  torch::Tensor weight;

 protected:
  // Returns the weight; gradients of elements that ranks share are reduced over tp in the backward if that is
  // requested.
  torch::Tensor used_weight() const;
  const ShardSpec& placement() const { return placement_; }
  ProcessGroup& group() const { return *group_; }  // after shard()

 private:
  const char* name_;
  std::vector<std::int64_t> shape_;  // global shape of the weight
  ProcessGroup* group_ = nullptr;
  ShardSpec placement_;
  GradientSum gradient_sum_ = GradientSum::kInBackward;
};

// RmsNorm over sharded features: the mean of squares is over the features of all ranks, and features that ranks share
// count once. Parameter weight [size].
class SplitRmsNormImpl : public ShardedNormImpl {
 public:
  explicit SplitRmsNormImpl(std::int64_t size, double eps = 1e-6);
  torch::Tensor forward(const torch::Tensor& input);  // [..., local features] -> the same shape; collective over tp

 private:
  torch::Tensor owned(const torch::Tensor& features) const;  // without features that a lower rank holds too

  std::int64_t size_;
  double eps_;
};
TORCH_MODULE(SplitRmsNorm);

// LayerNorm of each head with separate weights, computed in at least float32. Parameter weight [heads, size]; after
// shard() the local heads.
class HeadsLayerNormImpl : public ShardedNormImpl {
 public:
  HeadsLayerNormImpl(std::int64_t heads, std::int64_t size, double eps = 1e-5);
  torch::Tensor forward(const torch::Tensor& input);  // [..., local heads, size] -> the same shape

 private:
  std::int64_t size_;
  double eps_;
};
TORCH_MODULE(HeadsLayerNorm);

}  // namespace gantry::nn
