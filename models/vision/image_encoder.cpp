#include "gantry/models/vision/image_encoder.h"

#include "gantry/models/vision/grid_tower.h"
#include "gantry/models/vision/square_images.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

std::shared_ptr<ImageEncoder> make_image_encoder(torch::nn::Module& root, const VisionSpec& spec, std::int64_t hidden,
                                                 double initializer_range) {
  if (spec.grid_tower) return std::make_shared<GridImages>(root, spec, initializer_range);
  return std::make_shared<SquareImages>(root, spec, hidden, initializer_range);
}

torch::Tensor numbered_images(const torch::Tensor& types) {
  const torch::Tensor is_image = (types == 1).to(torch::kInt64);
  const torch::Tensor before = torch::constant_pad_nd(is_image, {1, -1});
  return (is_image * (1 - before)).cumsum(1) * is_image;
}

}  // namespace gantry::models
