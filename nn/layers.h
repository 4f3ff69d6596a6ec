// LayerNorm and Dropout, drop-in for LibTorch's, and causal self-attention's core.
#pragma once

#include <torch/torch.h>

#include "gantry/nn/shard_style.h"

namespace gantry::nn {

// Normalises the last dim. Parameters weight [size] (ones) and bias [size] (zeros).
class LayerNormImpl : public torch::nn::Module {
 public:
  explicit LayerNormImpl(std::int64_t size, double eps = 1e-5);
  torch::Tensor forward(const torch::Tensor& input);
  torch::Tensor weight, bias;

 private:
  std::int64_t size_;
  double eps_;
};
TORCH_MODULE(LayerNorm);

// Zeroes elements with probability p in training and scales the rest by 1 / (1 - p). The mask depends on (seed, step,
// global name, place in the global tensor) alone. Input [samples, tokens, features...], replicated over tp.
class DropoutImpl : public torch::nn::Module, public Named {
 public:
  explicit DropoutImpl(double p);
  torch::Tensor forward(const torch::Tensor& input);
  void set_global_name(const std::string& name) override { name_in_model_ = name; }
  const std::string& global_name() const { return name_in_model_; }
  double p() const { return p_; }

 private:
  double p_;
  std::string name_in_model_;
};
TORCH_MODULE(Dropout);

// What attention needs to know of the heads that this rank holds.
struct HeadRange {
  std::int64_t first = 0;  // of the global heads
  std::int64_t count = 0;  // held here
  std::int64_t total = 0;
};

// query, key, value [samples, heads, tokens, head size] -> the same shape; softmax(q k^T / sqrt(head size)) v, causal
// if asked. scaled_dot_product_attention's fused kernel without dropout; with it the mask comes from `dropout`'s name
// by global head.
torch::Tensor attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value, bool causal,
                        const DropoutImpl& dropout, const HeadRange& heads);

}  // namespace gantry::nn
