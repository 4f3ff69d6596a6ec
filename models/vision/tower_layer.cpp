#include "gantry/models/vision/tower_layer.h"

#include "gantry/models/register_at.h"
#include "gantry/nn/activation.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

TowerLayerImpl::TowerLayerImpl(const TowerSpec& spec)
    : heads_(spec.heads), head_size_(spec.head_size()), activation_(spec.activation) {
  before_attention_ = register_module("layer_norm1", nn::LayerNorm(spec.hidden, spec.eps));
  query_ = linear_at(*this, "self_attn.q_proj", spec.hidden, spec.hidden, true);
  key_ = linear_at(*this, "self_attn.k_proj", spec.hidden, spec.hidden, true);
  value_ = linear_at(*this, "self_attn.v_proj", spec.hidden, spec.hidden, true);
  dropout_ = register_at(*this, "self_attn.dropout", nn::Dropout(0.0));
  output_ = linear_at(*this, "self_attn.out_proj", spec.hidden, spec.hidden, true);
  before_mlp_ = register_module("layer_norm2", nn::LayerNorm(spec.hidden, spec.eps));
  up_ = linear_at(*this, "mlp.fc1", spec.hidden, spec.width, true);
  down_ = linear_at(*this, "mlp.fc2", spec.width, spec.hidden, true);
}

torch::Tensor TowerLayerImpl::attend(const torch::Tensor& input, const nn::AttentionOptions& attention) {
  const nn::HeadRange heads = nn::held_heads(query_, head_size_, heads_);
  const auto parts = nn::together(input, {query_, key_, value_});
  const auto by_head = [&](int part) { return nn::split_heads(parts[part], heads.count); };
  return output_(
      nn::merge_heads(nn::attention(by_head(0), by_head(1), by_head(2), heads, heads, attention, *dropout_)));
}

torch::Tensor TowerLayerImpl::forward(const torch::Tensor& hidden, const nn::AttentionOptions& attention) {
  const torch::Tensor attended = hidden + attend(before_attention_(hidden), attention);
  return attended + down_(nn::activate(up_(before_mlp_(attended)), activation_));
}

}  // namespace gantry::models
