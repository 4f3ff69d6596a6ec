#include "gantry/models/vision/pixtral_tower.h"

#include "gantry/models/register_at.h"
#include "gantry/models/vision/patch_rotary.h"
#include "gantry/models/vision/rotary_tower_layer.h"
#include "gantry/nn/activation.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

constexpr std::int64_t kColumnOffset = 2;  // columns have the odd frequencies of a head

torch::Tensor places_in_rows(std::int64_t rows, std::int64_t columns, torch::Device device) {
  const torch::Tensor place = torch::arange(rows * columns, torch::TensorOptions(torch::kInt64).device(device));
  return torch::stack({place.div(columns, "floor"), place.remainder(columns)}, -1).unsqueeze(0);
}

const RotaryTowerNames& layer_names() {
  static const RotaryTowerNames names{.attention_norm = "attention_norm",
                                      .projections = {"attention.q_proj", "attention.k_proj", "attention.v_proj"},
                                      .output = "attention.o_proj",
                                      .dropout = "attention.dropout",
                                      .mlp_norm = "ffn_norm",
                                      .gate = "feed_forward.gate_proj",
                                      .up = "feed_forward.up_proj",
                                      .down = "feed_forward.down_proj"};
  return names;
}

}  // namespace

PixtralTowerImpl::PixtralTowerImpl(const VisionSpec& spec, double initializer_range) : spec_(spec) {
  const torch::NoGradGuard no_grad;
  const TowerSpec& tower = spec.tower;
  auto patches = register_module("patch_conv", std::make_shared<torch::nn::Module>());
  patch_weight_ =
      patches->register_parameter("weight", torch::empty({tower.hidden, spec.channels, spec.patch, spec.patch}));
  torch::nn::init::normal_(patch_weight_, 0, initializer_range);
  norm_ = register_module("ln_pre", nn::RmsNorm(tower.hidden, tower.eps));
  layers_ = register_at(*this, "transformer.layers", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < tower.layers; ++layer)
    layers_->push_back(RotaryTowerLayer(tower, layer_names()));
}

torch::Tensor PixtralTowerImpl::embed(const torch::Tensor& pixels) {
  const torch::Tensor patches =
      at::conv2d(pixels.to(patch_weight_.scalar_type()), patch_weight_, {}, /*stride=*/spec_.patch);
  return norm_(patches.flatten(2).transpose(1, 2)).unflatten(1, {patches.size(2), patches.size(3)});
}

ImageEncoder::Layer PixtralTowerImpl::layers(const torch::Tensor& patches, const torch::Tensor& groups) {
  const std::int64_t rows = patches.size(1), columns = patches.size(2);
  const torch::Tensor angles = patch_angles(places_in_rows(rows, columns, patches.device()), spec_.tower.head_size(),
                                            spec_.pixtral->theta, patches.scalar_type(), kColumnOffset);
  return [layers = layers_, angles, groups, rows, columns](int index, const torch::Tensor& input) {
    const torch::Tensor made = layers->ptr<RotaryTowerLayerImpl>(index)->forward(input.flatten(1, 2), angles, groups);
    return made.unflatten(1, {rows, columns});
  };
}

PatchProjectorImpl::PatchProjectorImpl(const VisionSpec& spec, std::int64_t hidden) : spec_(spec) {
  const std::int64_t size = spec.tower.hidden, square = spec.pixtral->merge * spec.pixtral->merge * size;
  norm_ = register_module("norm", nn::RmsNorm(size, spec.pixtral->projector_eps));
  merging_ = linear_at(*this, "patch_merger.merging_layer", square, size, false);
  first_ = linear_at(*this, "linear_1", size, hidden, spec.projector_bias);
  second_ = linear_at(*this, "linear_2", hidden, hidden, spec.projector_bias);
}

torch::Tensor PatchProjectorImpl::forward(const torch::Tensor& patches) {
  const std::int64_t merge = spec_.pixtral->merge, images = patches.size(0), rows = patches.size(1),
                     columns = patches.size(2), size = patches.size(3);
  // The features of a square are ordered by feature first, and by patch second.
  const torch::Tensor squares = norm_(patches)
                                    .reshape({images, rows / merge, merge, columns / merge, merge, size})
                                    .permute({0, 1, 3, 5, 2, 4})
                                    .reshape({images, rows * columns / (merge * merge), size * merge * merge});
  return second_(nn::activate(first_(merging_(squares)), spec_.projector_activation));
}

}  // namespace gantry::models
