#include "gantry/models/vision/images_by_sample.h"

#include "gantry/models/vision/grid_layout.h"
#include "gantry/models/vision/image_ranges.h"
#include "gantry/models/vision/pixtral_images.h"
#include "gantry/tensors/batch.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

TensorDict images_by_sample(TensorDict batch, const VisionSpec& vision) {
  if (vision.grid_tower) return grids_by_sample(std::move(batch), vision);
  if (vision.pixtral) return sized_images_by_sample(std::move(batch), vision);
  const torch::Tensor pixels = batch.get("pixel_values");
  if (!pixels.defined() || pixels.dim() != 4) return batch;
  const torch::Tensor tokens = (batch.at("input_ids") == vision.image_token).sum(1);
  const torch::Tensor counts = tokens.div(vision.features(), "floor");
  // Images of a sample without image tokens are padding.
  if (pixels.size(0) == counts.size(0) && (counts <= 1).all().item<bool>()) return batch;
  const std::vector<std::int64_t> features(static_cast<std::size_t>(pixels.size(0)), vision.features());
  batch.set("pixel_values",
            padded_by_sample(pixels, image_ranges(batch.at("input_ids"), vision.image_token, features)));
  return batch;
}

TensorDict completed_images(TensorDict batch, const VisionSpec& vision) {
  batch = images_by_sample(std::move(batch), vision);
  if (vision.both_directions)
    batch.set("token_type_ids", (batch.at("input_ids") == vision.image_token).to(torch::kInt64));
  if (vision.grid_tower && !batch.contains("position_ids"))
    batch.set("position_ids", grid_positions(batch, batch.at("image_grid_thw"), vision));
  return samples_first(std::move(batch));
}

}  // namespace gantry::models
