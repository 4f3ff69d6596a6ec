#include "gantry/models/vision/square_images.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/vision/tower_layer.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

SquareImages::SquareImages(torch::nn::Module& root, const VisionSpec& spec, std::int64_t hidden,
                           double initializer_range)
    : spec_(spec) {
  tower_ = root.register_module(kVisionTower, VisionTower(spec, initializer_range));
  projector_ = root.register_module(kImageProjector, ImageProjector(spec, hidden, initializer_range));
}

torch::Tensor SquareImages::embed(const TensorDict& batch) {
  const std::int64_t size = spec_.image_size;
  torch::Tensor pixels = batch.get("pixel_values");
  if (!pixels.defined())
    pixels = torch::zeros({0, spec_.channels, size, size},
                          torch::TensorOptions(torch::kFloat32).device(tower_->parameters().front().device()));
  if (pixels.dim() == 4) pixels = pixels.unsqueeze(1);
  if (pixels.dim() != 5 || pixels.size(2) != spec_.channels || pixels.size(3) != size || pixels.size(4) != size)
    throw InputError({"pixel_values", "the tensor is " + describe(batch.at("pixel_values")),
                      fmt::format("[samples, images, {0}, {1}, {1}] or [samples, {0}, {1}, {1}], the channels and the "
                                  "image_size of the image encoder",
                                  spec_.channels, size),
                      "resize the images"});
  return tower_->embed(pixels.flatten(0, 1));
}

ImageEncoder::Layer SquareImages::layers(const torch::Tensor& /*patches*/, const TensorDict& /*batch*/) {
  return [layers = tower_->layers()](int index, const torch::Tensor& patches) {
    return layers->ptr<TowerLayerImpl>(index)->forward(patches, {});
  };
}

torch::Tensor SquareImages::features(const torch::Tensor& patches, const TensorDict& /*batch*/, std::int64_t samples) {
  const torch::Tensor made = projector_(tower_->normed(patches));
  return made.reshape({samples, patches.size(0) / samples * spec_.features(), made.size(2)});
}

void SquareImages::check_tokens(const torch::Tensor& input_ids, const torch::Tensor& patches,
                                const TensorDict& /*batch*/) const {
  const std::int64_t images = patches.size(0) / input_ids.size(0), of_image = spec_.features();
  const torch::Tensor counts = (input_ids == spec_.image_token).sum(1);
  for (std::int64_t sample = 0; sample < counts.size(0); ++sample) {
    const auto count = counts[sample].item<std::int64_t>();
    if (count % of_image == 0 && count <= images * of_image) continue;
    throw InputError({"input_ids",
                      fmt::format("sample {} has {} image tokens ({}), but pixel_values has {} images of {} tokens",
                                  sample, count, spec_.image_token, images, of_image),
                      fmt::format("{} image tokens for each image of the sample", of_image),
                      "prepare input_ids with the processor of the model"});
  }
}

}  // namespace gantry::models
