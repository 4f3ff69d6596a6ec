#include "gantry/models/vision/images_by_sample.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/vision/grid_layout.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

TensorDict images_by_sample(TensorDict batch, const VisionSpec& vision) {
  if (vision.grid_tower) return grids_by_sample(std::move(batch), vision);
  const torch::Tensor pixels = batch.get("pixel_values");
  if (!pixels.defined() || pixels.dim() != 4) return batch;
  const torch::Tensor tokens = (batch.at("input_ids") == vision.image_token).sum(1);
  const torch::Tensor counts = tokens.div(vision.features(), "floor");
  // Images of a sample without image tokens are padding.
  if (pixels.size(0) == counts.size(0) && (counts <= 1).all().item<bool>()) return batch;
  const auto images = counts.sum().item<std::int64_t>();
  if (images != pixels.size(0))
    throw InputError(
        {"pixel_values",
         fmt::format("there are {} images, but input_ids has {} image tokens ({}) of {} for each image", pixels.size(0),
                     tokens.sum().item<std::int64_t>(), vision.image_token, vision.features()),
         "the images of the image tokens, in their order", "prepare both with the model's processor"});
  std::vector<std::int64_t> shape = pixels.sizes().vec();
  shape[0] = std::max<std::int64_t>(1, counts.max().item<std::int64_t>());
  shape.insert(shape.begin(), counts.size(0));
  torch::Tensor padded = torch::zeros(shape, pixels.options());
  std::int64_t begin = 0;
  for (std::int64_t sample = 0; sample < counts.size(0); ++sample) {
    const auto count = counts[sample].item<std::int64_t>();
    padded[sample].narrow(0, 0, count).copy_(pixels.narrow(0, begin, count));
    begin += count;
  }
  batch.set("pixel_values", padded);
  return batch;
}

}  // namespace gantry::models
