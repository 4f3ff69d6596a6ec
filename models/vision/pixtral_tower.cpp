#include "gantry/models/vision/pixtral_tower.h"

#include "gantry/models/register_at.h"
#include "gantry/models/vision/patch_rotary.h"
#include "gantry/models/vision/tower_layer.h"
#include "gantry/nn/activation.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

constexpr std::int64_t kColumnOffset = 2;  // columns have the odd frequencies of a head

torch::Tensor places_in_rows(std::int64_t rows, std::int64_t columns, torch::Device device) {
  const torch::Tensor place = torch::arange(rows * columns, torch::TensorOptions(torch::kInt64).device(device));
  return torch::stack({place.div(columns, "floor"), place.remainder(columns)}, -1).unsqueeze(0);
}

}  // namespace

PixtralLayerImpl::PixtralLayerImpl(const TowerSpec& spec)
    : heads_(spec.heads), head_size_(spec.head_size()), activation_(spec.activation) {
  before_attention_ = register_module("attention_norm", nn::RmsNorm(spec.hidden, spec.eps));
  before_mlp_ = register_module("ffn_norm", nn::RmsNorm(spec.hidden, spec.eps));
  query_ = linear_at(*this, "attention.q_proj", spec.hidden, spec.hidden, false);
  key_ = linear_at(*this, "attention.k_proj", spec.hidden, spec.hidden, false);
  value_ = linear_at(*this, "attention.v_proj", spec.hidden, spec.hidden, false);
  dropout_ = register_at(*this, "attention.dropout", nn::Dropout(0.0));
  output_ = linear_at(*this, "attention.o_proj", spec.hidden, spec.hidden, false);
  gate_ = linear_at(*this, "feed_forward.gate_proj", spec.hidden, spec.width, false);
  up_ = linear_at(*this, "feed_forward.up_proj", spec.hidden, spec.width, false);
  down_ = linear_at(*this, "feed_forward.down_proj", spec.width, spec.hidden, false);
}

torch::Tensor PixtralLayerImpl::attend(const torch::Tensor& input, const torch::Tensor& angles,
                                       const torch::Tensor& groups) {
  const nn::HeadRange heads = nn::held_heads(query_, head_size_, heads_);
  const auto parts = nn::together(input, {query_, key_, value_});
  const auto by_head = [&](int part) { return nn::split_heads(parts[part], heads.count); };
  return output_(nn::merge_heads(nn::attention(turned_by(by_head(0), angles), turned_by(by_head(1), angles), by_head(2),
                                               heads, heads, {.documents = groups}, *dropout_)));
}

torch::Tensor PixtralLayerImpl::forward(const torch::Tensor& hidden, const torch::Tensor& angles,
                                        const torch::Tensor& groups) {
  const torch::Tensor attended = hidden + attend(before_attention_(hidden), angles, groups);
  const auto parts = nn::together(before_mlp_(attended), {gate_, up_});
  return attended + down_(nn::activate(parts[0], activation_) * parts[1]);
}

PixtralTowerImpl::PixtralTowerImpl(const VisionSpec& spec, double initializer_range) : spec_(spec) {
  const torch::NoGradGuard no_grad;
  const TowerSpec& tower = spec.tower;
  auto patches = register_module("patch_conv", std::make_shared<torch::nn::Module>());
  patch_weight_ =
      patches->register_parameter("weight", torch::empty({tower.hidden, spec.channels, spec.patch, spec.patch}));
  torch::nn::init::normal_(patch_weight_, 0, initializer_range);
  norm_ = register_module("ln_pre", nn::RmsNorm(tower.hidden, tower.eps));
  layers_ = register_at(*this, "transformer.layers", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < tower.layers; ++layer) layers_->push_back(PixtralLayer(tower));
}

torch::Tensor PixtralTowerImpl::forward(const torch::Tensor& pixels, const torch::Tensor& groups) {
  const torch::ScalarType type = patch_weight_.scalar_type();
  const torch::Tensor patches = at::conv2d(pixels.to(type), patch_weight_, {}, /*stride=*/spec_.patch);
  const torch::Tensor angles = patch_angles(places_in_rows(patches.size(2), patches.size(3), pixels.device()),
                                            spec_.tower.head_size(), spec_.pixtral->theta, type, kColumnOffset);
  const auto layer = [layers = layers_, angles, groups](int index, const torch::Tensor& hidden) {
    return layers->ptr<PixtralLayerImpl>(index)->forward(hidden, angles, groups);
  };
  return run_tower(static_cast<int>(layers_->size()), norm_(patches.flatten(2).transpose(1, 2)), layer);
}

PatchProjectorImpl::PatchProjectorImpl(const VisionSpec& spec, std::int64_t hidden) : spec_(spec) {
  const std::int64_t size = spec.tower.hidden, square = spec.pixtral->merge * spec.pixtral->merge * size;
  norm_ = register_module("norm", nn::RmsNorm(size, spec.pixtral->projector_eps));
  merging_ = linear_at(*this, "patch_merger.merging_layer", square, size, false);
  first_ = linear_at(*this, "linear_1", size, hidden, spec.projector_bias);
  second_ = linear_at(*this, "linear_2", hidden, hidden, spec.projector_bias);
}

torch::Tensor PatchProjectorImpl::forward(const torch::Tensor& patches, std::int64_t columns) {
  const std::int64_t merge = spec_.pixtral->merge, images = patches.size(0), size = patches.size(2),
                     rows = patches.size(1) / columns;
  // The features of a square are ordered by feature first, and by patch second.
  const torch::Tensor squares = norm_(patches)
                                    .reshape({images, rows / merge, merge, columns / merge, merge, size})
                                    .permute({0, 1, 3, 5, 2, 4})
                                    .reshape({images, rows * columns / (merge * merge), size * merge * merge});
  return second_(nn::activate(first_(merging_(squares)), spec_.projector_activation));
}

}  // namespace gantry::models
