// Images of unequal sizes for Mistral 3, each padded to the size of the largest one.
#pragma once

#include "gantry/models/vision/image_encoder.h"
#include "gantry/models/vision/pixtral_tower.h"

namespace gantry::models {

// Reads pixel_values [samples, images, channels, height, width] and image_sizes [samples, images, 2]: height and width
// of each image in pixels, zeros for samples with fewer images. An image fills the upper left part of its pixels.
class PixtralImages final : public ImageEncoder {
 public:
  PixtralImages(torch::nn::Module& root, const VisionSpec& spec, std::int64_t hidden, double initializer_range);
  torch::Tensor embed(const TensorDict& batch) override;
  Layer layers(const torch::Tensor& patches, const TensorDict& batch) override;
  torch::Tensor features(const torch::Tensor& patches, const TensorDict& batch, std::int64_t samples) override;
  void check_tokens(const torch::Tensor& input_ids, const torch::Tensor& patches,
                    const TensorDict& batch) const override;

 private:
  const VisionSpec spec_;
  PixtralTower tower_{nullptr};
  PatchProjector projector_{nullptr};
};

// Converts the entries of Hugging Face's processor, pixel_values [images, channels, height, width] and image_sizes
// [images, 2], to entries with the samples first.
TensorDict sized_images_by_sample(TensorDict batch, const VisionSpec& spec);

}  // namespace gantry::models
