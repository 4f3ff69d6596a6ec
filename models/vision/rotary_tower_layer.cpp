#include "gantry/models/vision/rotary_tower_layer.h"

#include "gantry/models/register_at.h"
#include "gantry/models/vision/patch_rotary.h"
#include "gantry/nn/activation.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

RotaryTowerLayerImpl::RotaryTowerLayerImpl(const TowerSpec& spec, const RotaryTowerNames& names)
    : heads_(spec.heads), head_size_(spec.head_size()), activation_(spec.activation) {
  const std::int64_t parts = names.projections.size() == 1 ? 3 : 1;
  before_attention_ = register_module(names.attention_norm, nn::RmsNorm(spec.hidden, spec.eps));
  before_mlp_ = register_module(names.mlp_norm, nn::RmsNorm(spec.hidden, spec.eps));
  for (const std::string& name : names.projections)
    projections_.push_back(linear_at(*this, name, spec.hidden, parts * spec.hidden, names.bias));
  output_ = linear_at(*this, names.output, spec.hidden, spec.hidden, names.bias);
  dropout_ = register_at(*this, names.dropout, nn::Dropout(0.0));
  gate_ = linear_at(*this, names.gate, spec.hidden, spec.width, names.bias);
  up_ = linear_at(*this, names.up, spec.hidden, spec.width, names.bias);
  down_ = linear_at(*this, names.down, spec.width, spec.hidden, names.bias);
}

torch::Tensor RotaryTowerLayerImpl::attend(const torch::Tensor& input, const torch::Tensor& angles,
                                           const torch::Tensor& groups) {
  const nn::HeadRange heads = nn::held_heads(projections_.front(), head_size_, heads_);
  auto parts = nn::together(input, projections_);
  if (parts.size() == 1) parts = parts.front().chunk(3, -1);
  const auto by_head = [&](int part) { return nn::split_heads(parts[part], heads.count); };
  return output_(nn::merge_heads(nn::attention(turned_by(by_head(0), angles), turned_by(by_head(1), angles), by_head(2),
                                               heads, heads, {.documents = groups}, *dropout_)));
}

torch::Tensor RotaryTowerLayerImpl::forward(const torch::Tensor& hidden, const torch::Tensor& angles,
                                            const torch::Tensor& groups) {
  const torch::Tensor attended = hidden + attend(before_attention_(hidden), angles, groups);
  const auto parts = nn::together(before_mlp_(attended), {gate_, up_});
  return attended + down_(nn::gated(parts[0], parts[1], activation_));
}

}  // namespace gantry::models
