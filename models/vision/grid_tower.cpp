#include "gantry/models/vision/grid_tower.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/register_at.h"
#include "gantry/models/vision/patch_rotary.h"
#include "gantry/models/vision/tower_layer.h"
#include "gantry/nn/activation.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

constexpr double kTheta = 10000;

torch::Tensor read_grids(const TensorDict& batch) {
  const torch::Tensor given = batch.get("image_grid_thw");
  if (!given.defined())
    throw InputError({"image_grid_thw", "the batch has pixel_values, but no sizes of its images",
                      "[samples, images, 3]: the numbers of frames, and of patches in height and width",
                      "add the entry of the model's processor"});
  return host_numbers(given);
}

}  // namespace

GridLayerImpl::GridLayerImpl(const TowerSpec& spec)
    : heads_(spec.heads), head_size_(spec.head_size()), activation_(spec.activation) {
  before_attention_ = register_module("norm1", nn::RmsNorm(spec.hidden, spec.eps));
  before_mlp_ = register_module("norm2", nn::RmsNorm(spec.hidden, spec.eps));
  rows_ = linear_at(*this, "attn.qkv", spec.hidden, 3 * spec.hidden, true);
  output_ = linear_at(*this, "attn.proj", spec.hidden, spec.hidden, true);
  dropout_ = register_at(*this, "attn.dropout", nn::Dropout(0.0));
  gate_ = linear_at(*this, "mlp.gate_proj", spec.hidden, spec.width, true);
  up_ = linear_at(*this, "mlp.up_proj", spec.hidden, spec.width, true);
  down_ = linear_at(*this, "mlp.down_proj", spec.width, spec.hidden, true);
}

torch::Tensor GridLayerImpl::attend(const torch::Tensor& input, const torch::Tensor& angles,
                                    const torch::Tensor& groups) {
  const nn::HeadRange heads = nn::held_heads(rows_, head_size_, heads_);
  const auto parts = rows_(input).chunk(3, -1);
  const auto by_head = [&](int part) { return nn::split_heads(parts[part], heads.count); };
  const nn::AttentionOptions options{.documents = groups};
  return output_(nn::merge_heads(nn::attention(turned_by(by_head(0), angles), turned_by(by_head(1), angles), by_head(2),
                                               heads, heads, options, *dropout_)));
}

torch::Tensor GridLayerImpl::forward(const torch::Tensor& hidden, const torch::Tensor& angles,
                                     const torch::Tensor& groups) {
  const torch::Tensor attended = hidden + attend(before_attention_(hidden), angles, groups);
  const auto parts = nn::together(before_mlp_(attended), {gate_, up_});
  return attended + down_(nn::activate(parts[0], activation_) * parts[1]);
}

GridTowerImpl::GridTowerImpl(const VisionSpec& spec, double initializer_range) : spec_(spec) {
  const torch::NoGradGuard no_grad;
  const TowerSpec& tower = spec.tower;
  const GridTowerSpec& grid = *spec.grid_tower;
  auto patches = register_at(*this, "patch_embed.proj", std::make_shared<torch::nn::Module>());
  patch_weight_ = patches->register_parameter(
      "weight", torch::empty({tower.hidden, spec.channels, grid.frames, spec.patch, spec.patch}));
  torch::nn::init::normal_(patch_weight_, 0, initializer_range);
  layers_ = register_module("blocks", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < tower.layers; ++layer) layers_->push_back(GridLayer(tower));
  const std::int64_t square = grid.merge * grid.merge * tower.hidden;
  norm_ = register_at(*this, "merger.ln_q", nn::RmsNorm(tower.hidden, tower.eps));
  wide_ = linear_at(*this, "merger.mlp.0", square, square, true);
  output_ = linear_at(*this, "merger.mlp.2", square, grid.outputs, true);
}

torch::Tensor GridTowerImpl::forward(const torch::Tensor& pixels, const GridLayout& layout) {
  const torch::ScalarType type = patch_weight_.scalar_type();
  const torch::Tensor patches = torch::linear(pixels.to(type), patch_weight_.flatten(1));
  const torch::Tensor angles_of_patches = patch_angles(layout.places, spec_.tower.head_size(), kTheta, type);
  // Masks are kept by the tensor of the groups, which must stay the same object in a recomputation.
  const auto layer = [layers = layers_, full = spec_.grid_tower->full_layers, angles = angles_of_patches, layout](
                         int index, const torch::Tensor& hidden) {
    const bool is_full = std::find(full.begin(), full.end(), index) != full.end();
    return layers->ptr<GridLayerImpl>(index)->forward(hidden, angles, is_full ? layout.frames : layout.windows);
  };
  const torch::Tensor hidden = run_tower(static_cast<int>(layers_->size()), patches, layer);
  const std::int64_t square = spec_.grid_tower->merge * spec_.grid_tower->merge;
  const torch::Tensor squares =
      norm_(hidden).reshape({hidden.size(0), hidden.size(1) / square, square * hidden.size(2)});
  return output_(nn::activate(wide_(squares), "gelu"));
}

GridImages::GridImages(torch::nn::Module& root, const VisionSpec& spec, double initializer_range) : spec_(spec) {
  tower_ = root.register_module(kGridTower, GridTower(spec, initializer_range));
}

torch::Tensor GridImages::features(const TensorDict& batch, std::int64_t samples) {
  const GridTowerSpec& grid = *spec_.grid_tower;
  const std::int64_t numbers = spec_.channels * grid.frames * spec_.patch * spec_.patch;
  const std::int64_t square = grid.merge * grid.merge;
  torch::Tensor pixels = batch.get("pixel_values");
  torch::Tensor grids = torch::zeros({0, 1, 3}, torch::kInt64);
  const torch::Device device = tower_->parameters().front().device();
  if (pixels.defined()) {
    grids = read_grids(batch);
  } else {
    pixels = torch::zeros({0, square, numbers}, torch::TensorOptions(torch::kFloat32).device(device));
  }
  if (pixels.dim() != 3 || pixels.size(2) != numbers || pixels.size(1) % square != 0 || grids.size(0) != pixels.size(0))
    throw InputError({"pixel_values", "the tensor is " + describe(pixels),
                      fmt::format("[samples, patches, {}] with a multiple of {} patches, and image_grid_thw of as many "
                                  "samples",
                                  numbers, square),
                      "prepare the images with the model's processor, and pad the samples with zeros"});
  GridLayout layout = lay_out_grids(grids, pixels.size(1), spec_);
  for (torch::Tensor* places : {&layout.places, &layout.frames, &layout.windows}) *places = places->to(device);
  const torch::Tensor made = tower_(pixels, layout);
  return batch.contains("pixel_values") ? made : made.reshape({samples, 0, made.size(2)});
}

void GridImages::check_tokens(const torch::Tensor& input_ids, const TensorDict& batch) const {
  if (!batch.contains("position_ids"))
    throw InputError({"position_ids", "the batch has images, but no positions of its tokens",
                      "[3, samples, tokens]: time, row and column",
                      "add the positions that the model's processor or get_rope_index computes"});
  const GridLayout layout = lay_out_grids(read_grids(batch), batch.at("pixel_values").size(1), spec_);
  check_feature_counts(input_ids, spec_.image_token, layout.features);
}

}  // namespace gantry::models
