// LayerNorm and RmsNorm over the last dim. Under SequenceParallel their input is this rank's part of the tokens, under
// OnHeads this rank's heads, and their parameters' gradients are partial sums over tp.
#pragma once

#include <vector>

#include <torch/nn/modules/normalization.h>

#include "gantry/nn/shard_style.h"

namespace gantry::nn {

// What norms share: replicated parameters on whole activations or on sequence shards.
class NormImpl : public torch::nn::Module, public Shardable {
 public:
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;

 protected:
  // The parameter with its gradient summed over tp in the backward, where that is asked for.
  torch::Tensor used(const torch::Tensor& parameter) const;

 private:
  ProcessGroup* summed_over_ = nullptr;
};

enum class LayerNormParameters { kWeightAndBias, kWeight, kNone };

// Drop-in for torch::nn::LayerNorm over one dim. Parameters weight [size] (ones) and bias [size] (zeros), undefined
// where it has none.
class LayerNormImpl : public NormImpl {
 public:
  explicit LayerNormImpl(std::int64_t size, double eps = 1e-5,
                         LayerNormParameters parameters = LayerNormParameters::kWeightAndBias);
  torch::Tensor forward(const torch::Tensor& input);
  torch::Tensor weight, bias;

 private:
  std::int64_t size_;
  double eps_;
};
TORCH_MODULE(LayerNorm);

// What a norm multiplies with: its weight, or 1 + weight (Gemma), computed in float32 or wider.
enum class NormScale { kWeight, kOnePlusWeight };

// x / sqrt(mean(x^2) + eps) * scale (Zhang & Sennrich, arXiv 1910.07467). Parameter weight [size], such that the scale
// begins as ones.
class RmsNormImpl : public NormImpl {
 public:
  explicit RmsNormImpl(std::int64_t size, double eps = 1e-6, NormScale scale = NormScale::kWeight);
  torch::Tensor forward(const torch::Tensor& input);
  torch::Tensor weight;

 private:
  std::int64_t size_;
  double eps_;
  NormScale scale_;
};
TORCH_MODULE(RmsNorm);

// What norms of features that a column-sharded Linear gives share: parameter weight (ones), cut as that Linear's rows.
class ShardedNormImpl : public torch::nn::Module, public Shardable {
 public:
  // `name`: in errors.
  ShardedNormImpl(const char* name, std::vector<std::int64_t> shape);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  torch::Tensor weight;

 protected:
  // The weight, with gradients of what ranks share summed over tp in the backward, where that is asked for.
  torch::Tensor used_weight() const;
  const ShardSpec& cut() const { return cut_; }
  ProcessGroup& group() const { return *group_; }  // after shard()

 private:
  const char* name_;
  std::vector<std::int64_t> shape_;  // whole, also where another rank's values are to come
  ProcessGroup* group_ = nullptr;
  ShardSpec cut_;
  GradientSum gradient_sum_ = GradientSum::kInBackward;
};

// RmsNorm over features of which each rank has its part: the mean of squares goes over all, and features that ranks
// share count once. Parameter weight [size].
class SplitRmsNormImpl : public ShardedNormImpl {
 public:
  explicit SplitRmsNormImpl(std::int64_t size, double eps = 1e-6);
  torch::Tensor forward(const torch::Tensor& input);  // [..., features held] -> the same; collective over tp

 private:
  torch::Tensor owned(const torch::Tensor& features) const;  // without what a lower rank has too

  std::int64_t size_;
  double eps_;
};
TORCH_MODULE(SplitRmsNorm);

// LayerNorm of each head with a weight of its own, computed in float32 or wider. Parameter weight [heads, size]; after
// shard() those of the heads held here.
class HeadsLayerNormImpl : public ShardedNormImpl {
 public:
  HeadsLayerNormImpl(std::int64_t heads, std::int64_t size, double eps = 1e-5);
  torch::Tensor forward(const torch::Tensor& input);  // [..., heads held, size] -> the same

 private:
  std::int64_t size_;
  double eps_;
};
TORCH_MODULE(HeadsLayerNorm);

}  // namespace gantry::nn
