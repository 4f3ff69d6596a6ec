#include "gantry/models/vision/image_encoder.h"

#include <cmath>

#include "gantry/models/register_at.h"
#include "gantry/models/vision/tower_layer.h"
#include "gantry/nn/activation.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

VisionTowerImpl::VisionTowerImpl(const VisionSpec& spec, double initializer_range) : spec_(spec) {
  const torch::NoGradGuard no_grad;
  const std::int64_t size = spec.tower.hidden;
  auto embeddings = register_module("embeddings", std::make_shared<torch::nn::Module>());
  const auto drawn = [&](torch::nn::Module& module, const char* name, const std::vector<std::int64_t>& shape) {
    torch::Tensor parameter = module.register_parameter(name, torch::empty(shape));
    torch::nn::init::normal_(parameter, 0, initializer_range);
    return parameter;
  };
  if (spec.class_token) class_token_ = drawn(*embeddings, "class_embedding", {size});
  auto patches = embeddings->register_module("patch_embedding", std::make_shared<torch::nn::Module>());
  patch_weight_ = drawn(*patches, "weight", {size, spec.channels, spec.patch, spec.patch});
  if (!spec.class_token)
    patch_bias_ = torch::nn::init::zeros_(patches->register_parameter("bias", torch::empty({size})));
  auto positions = embeddings->register_module("position_embedding", std::make_shared<torch::nn::Module>());
  positions_ = drawn(*positions, "weight", {spec.places(), size});
  if (spec.class_token) before_ = register_module("pre_layrnorm", nn::LayerNorm(size, spec.tower.eps));
  layers_ = register_at(*this, "encoder.layers", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < spec.tower.layers; ++layer) layers_->push_back(TowerLayer(spec.tower));
  if (spec.final_norm) after_ = register_module("post_layernorm", nn::LayerNorm(size, spec.tower.eps));
}

torch::Tensor VisionTowerImpl::embed(const torch::Tensor& pixels) {
  torch::Tensor tokens =
      at::conv2d(pixels.to(patch_weight_.scalar_type()), patch_weight_, patch_bias_, /*stride=*/spec_.patch)
          .flatten(2)
          .transpose(1, 2);
  if (class_token_.defined())
    tokens = torch::cat({class_token_.expand({tokens.size(0), 1, tokens.size(2)}), tokens}, 1);
  return tokens + positions_;
}

torch::Tensor VisionTowerImpl::forward(const torch::Tensor& pixels) {
  torch::Tensor hidden = embed(pixels);
  if (before_) hidden = before_(hidden);
  hidden = run_tower(layers_, hidden, {});
  return after_ ? after_(hidden) : hidden;
}

ImageProjectorImpl::ImageProjectorImpl(const VisionSpec& spec, std::int64_t hidden, double initializer_range)
    : spec_(spec) {
  const torch::NoGradGuard no_grad;
  const std::int64_t size = spec.tower.hidden;
  if (spec.projector == VisionSpec::Projector::kPooled) {
    projection_ = register_parameter("mm_input_projection_weight", torch::empty({size, hidden}));
    torch::nn::init::normal_(projection_, 0, initializer_range);
    norm_ = register_module("mm_soft_emb_norm", nn::RmsNorm(size, spec.tower.eps, nn::NormScale::kOnePlusWeight));
    return;
  }
  first_ = linear_at(*this, "linear_1", size, hidden, spec.projector_bias);
  second_ = linear_at(*this, "linear_2", hidden, hidden, spec.projector_bias);
}

torch::Tensor ImageProjectorImpl::pooled(const torch::Tensor& places) {
  const std::int64_t grid = spec_.grid(), side = spec_.pooled_side, step = grid / side;
  // Averages of squares of step x step patches.
  const torch::Tensor squares = places.reshape({places.size(0), side, step, side, step, places.size(2)});
  return squares.mean({2, 4}).flatten(1, 2);
}

torch::Tensor ImageProjectorImpl::forward(const torch::Tensor& places) {
  if (spec_.projector == VisionSpec::Projector::kPooled) return at::matmul(norm_(pooled(places)), projection_);
  const bool drops_class = spec_.class_token && !spec_.keeps_class_token;
  const torch::Tensor features = drops_class ? places.slice(1, 1) : places;
  return second_(nn::activate(first_(features), spec_.projector_activation));
}

torch::Tensor numbered_images(const torch::Tensor& types) {
  const torch::Tensor is_image = (types == 1).to(torch::kInt64);
  const torch::Tensor before = torch::constant_pad_nd(is_image, {1, -1});
  return (is_image * (1 - before)).cumsum(1) * is_image;
}

}  // namespace gantry::models
