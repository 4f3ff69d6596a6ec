// The projector of a tower's results into the width of a decoder.
#pragma once

#include "gantry/models/described/vision_spec.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/norms.h"
#include "gantry/tensors/tensor.h"

namespace gantry::models {

// Converts the tower's result into the features that replace image tokens.
class ImageProjectorImpl : public torch::nn::Module {
 public:
  // `hidden`: the width of the decoder.
  ImageProjectorImpl(const VisionSpec& spec, std::int64_t hidden, double initializer_range);
  // [images, places, tower's hidden] -> [images, VisionSpec::features(), hidden]
  torch::Tensor forward(const torch::Tensor& places);

 private:
  torch::Tensor pooled(const torch::Tensor& places);

  const VisionSpec spec_;
  torch::Tensor projection_;
  nn::RmsNorm norm_{nullptr};
  nn::Linear first_{nullptr}, second_{nullptr};
};
TORCH_MODULE(ImageProjector);

}  // namespace gantry::models
