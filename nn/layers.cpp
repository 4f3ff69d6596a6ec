#include "gantry/nn/layers.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/tensors/random_context.h"

namespace gantry::nn {

LayerNormImpl::LayerNormImpl(std::int64_t size, double eps) : size_(size), eps_(eps) {
  weight = register_parameter("weight", torch::empty({size}));
  bias = register_parameter("bias", torch::empty({size}));
  torch::nn::init::ones_(weight);
  torch::nn::init::zeros_(bias);
}

torch::Tensor LayerNormImpl::forward(const torch::Tensor& input) {
  return torch::layer_norm(input, {size_}, weight, bias, eps_);
}

DropoutImpl::DropoutImpl(double p) : p_(p) {
  if (!(p >= 0 && p < 1))
    throw ConfigError({"dropout", fmt::format("probability {}", p), "at least 0 and below 1", ""});
}

torch::Tensor DropoutImpl::forward(const torch::Tensor& input) {
  if (!is_training() || p_ == 0) return input;
  const RandomContext context = random_context();
  std::vector<std::int64_t> offset(input.dim(), 0), global = input.sizes().vec();
  offset[0] = context.first_sample;
  if (input.dim() > 1) offset[1] = context.first_token;
  if (input.dim() > 1 && context.sequence_length > 0) global[1] = context.sequence_length;
  return input * dropout_mask(input, p_, name_in_model_, context, offset, global);
}

torch::Tensor attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value, bool causal,
                        const DropoutImpl& dropout, const HeadRange& heads) {
  if (!dropout.is_training() || dropout.p() == 0)
    return at::scaled_dot_product_attention(query, key, value, {}, 0.0, causal);
  const std::int64_t tokens = query.size(2);
  torch::Tensor scores = at::matmul(query * (1 / std::sqrt(static_cast<double>(query.size(3)))), key.transpose(-2, -1));
  if (causal) {
    const torch::Tensor later =
        torch::ones({tokens, tokens}, torch::TensorOptions(torch::kBool).device(query.device())).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  const torch::Tensor weights = scores.softmax(-1);
  const RandomContext context = random_context();
  const torch::Tensor mask =
      dropout_mask(weights, dropout.p(), dropout.global_name(), context, {context.first_sample, heads.first, 0, 0},
                   {0, heads.total, weights.size(2), weights.size(3)});
  return at::matmul(weights * mask, value);
}

}  // namespace gantry::nn
