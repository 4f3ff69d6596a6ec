#include "gantry/models/vision/vision_tower.h"

#include "gantry/models/register_at.h"
#include "gantry/models/vision/tower_layer.h"
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
  tokens = tokens + positions_;
  return before_ ? before_(tokens) : tokens;
}

torch::Tensor VisionTowerImpl::normed(const torch::Tensor& hidden) { return after_ ? after_(hidden) : hidden; }

}  // namespace gantry::models
