#include "gantry/models/vision/grid_tower.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/register_at.h"
#include "gantry/models/vision/patch_rotary.h"
#include "gantry/models/vision/rotary_tower_layer.h"
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

const RotaryTowerNames& block_names() {
  static const RotaryTowerNames names{.attention_norm = "norm1",
                                      .projections = {"attn.qkv"},
                                      .output = "attn.proj",
                                      .dropout = "attn.dropout",
                                      .mlp_norm = "norm2",
                                      .gate = "mlp.gate_proj",
                                      .up = "mlp.up_proj",
                                      .down = "mlp.down_proj",
                                      .bias = true};
  return names;
}

}  // namespace

GridTowerImpl::GridTowerImpl(const VisionSpec& spec, double initializer_range) : spec_(spec) {
  const torch::NoGradGuard no_grad;
  const TowerSpec& tower = spec.tower;
  const GridTowerSpec& grid = *spec.grid_tower;
  auto patches = register_at(*this, "patch_embed.proj", std::make_shared<torch::nn::Module>());
  patch_weight_ = patches->register_parameter(
      "weight", torch::empty({tower.hidden, spec.channels, grid.frames, spec.patch, spec.patch}));
  torch::nn::init::normal_(patch_weight_, 0, initializer_range);
  layers_ = register_module("blocks", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < tower.layers; ++layer)
    layers_->push_back(RotaryTowerLayer(tower, block_names()));
  const std::int64_t square = grid.merge * grid.merge * tower.hidden;
  norm_ = register_at(*this, "merger.ln_q", nn::RmsNorm(tower.hidden, tower.eps));
  wide_ = linear_at(*this, "merger.mlp.0", square, square, true);
  output_ = linear_at(*this, "merger.mlp.2", square, grid.outputs, true);
}

torch::Tensor GridTowerImpl::embed(const torch::Tensor& pixels) {
  return torch::linear(pixels.to(patch_weight_.scalar_type()), patch_weight_.flatten(1));
}

ImageEncoder::Layer GridTowerImpl::layers(const GridLayout& layout, torch::ScalarType type) {
  const torch::Tensor angles = patch_angles(layout.places, spec_.tower.head_size(), kTheta, type);
  // Masks are kept by the tensor of the groups, which must stay the same object in a recomputation.
  return [layers = layers_, full = spec_.grid_tower->full_layers, angles, layout](int index,
                                                                                  const torch::Tensor& patches) {
    const bool is_full = std::find(full.begin(), full.end(), index) != full.end();
    return layers->ptr<RotaryTowerLayerImpl>(index)->forward(patches, angles, is_full ? layout.frames : layout.windows);
  };
}

torch::Tensor GridTowerImpl::merge(const torch::Tensor& patches) {
  const std::int64_t square = spec_.grid_tower->merge * spec_.grid_tower->merge;
  const torch::Tensor squares =
      norm_(patches).reshape({patches.size(0), patches.size(1) / square, square * patches.size(2)});
  return output_(nn::activate(wide_(squares), "gelu"));
}

GridImages::GridImages(torch::nn::Module& root, const VisionSpec& spec, double initializer_range) : spec_(spec) {
  tower_ = root.register_module(kGridTower, GridTower(spec, initializer_range));
}

torch::Tensor GridImages::embed(const TensorDict& batch) {
  const GridTowerSpec& grid = *spec_.grid_tower;
  const std::int64_t numbers = spec_.channels * grid.frames * spec_.patch * spec_.patch;
  const std::int64_t square = grid.merge * grid.merge;
  const torch::Tensor pixels = batch.get("pixel_values");
  if (!pixels.defined()) {
    const torch::Device device = tower_->parameters().front().device();
    return tower_->embed(torch::zeros({0, square, numbers}, torch::TensorOptions(torch::kFloat32).device(device)));
  }
  if (pixels.dim() != 3 || pixels.size(2) != numbers || pixels.size(1) % square != 0 ||
      read_grids(batch).size(0) != pixels.size(0))
    throw InputError({"pixel_values", "the tensor is " + describe(pixels),
                      fmt::format("[samples, patches, {}] with a multiple of {} patches, and image_grid_thw of as many "
                                  "samples",
                                  numbers, square),
                      "prepare the images with the model's processor, and pad the samples with zeros"});
  return tower_->embed(pixels);
}

ImageEncoder::Layer GridImages::layers(const torch::Tensor& patches, const TensorDict& batch) {
  const torch::Tensor grids = patches.size(0) > 0 ? read_grids(batch) : torch::zeros({0, 1, 3}, torch::kInt64);
  GridLayout layout = lay_out_grids(grids, patches.size(1), spec_);
  for (torch::Tensor* places : {&layout.places, &layout.frames, &layout.windows})
    *places = places->to(patches.device());
  return tower_->layers(layout, patches.scalar_type());
}

torch::Tensor GridImages::features(const torch::Tensor& patches, const TensorDict& /*batch*/, std::int64_t samples) {
  const torch::Tensor made = tower_->merge(patches);
  return patches.size(0) > 0 ? made : made.reshape({samples, 0, made.size(2)});
}

void GridImages::check_tokens(const torch::Tensor& input_ids, const torch::Tensor& patches,
                              const TensorDict& batch) const {
  if (!batch.contains("position_ids"))
    throw InputError({"position_ids", "the batch has images, but no positions of its tokens",
                      "[3, samples, tokens]: time, row and column",
                      "add the positions that the model's processor or get_rope_index computes"});
  const GridLayout layout = lay_out_grids(read_grids(batch), patches.size(1), spec_);
  check_feature_counts(input_ids, spec_.image_token, layout.features);
}

}  // namespace gantry::models
