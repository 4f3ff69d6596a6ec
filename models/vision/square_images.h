// Image encoders for images of one size.
#pragma once

#include "gantry/models/vision/image_encoder.h"
#include "gantry/models/vision/image_projector.h"
#include "gantry/models/vision/vision_tower.h"

namespace gantry::models {

// A VisionTower and an ImageProjector. Reads pixel_values [samples, channels, size, size] or [samples, images,
// channels, size, size].
class SquareImages final : public ImageEncoder {
 public:
  SquareImages(torch::nn::Module& root, const VisionSpec& spec, std::int64_t hidden, double initializer_range);
  torch::Tensor embed(const TensorDict& batch) override;
  Layer layers(const torch::Tensor& patches, const TensorDict& batch) override;
  torch::Tensor features(const torch::Tensor& patches, const TensorDict& batch, std::int64_t samples) override;
  void check_tokens(const torch::Tensor& input_ids, const torch::Tensor& patches,
                    const TensorDict& batch) const override;

 private:
  const VisionSpec spec_;
  VisionTower tower_{nullptr};
  ImageProjector projector_{nullptr};
};

}  // namespace gantry::models
