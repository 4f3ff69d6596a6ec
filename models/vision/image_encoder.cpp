#include "gantry/models/vision/image_encoder.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/vision/grid_tower.h"
#include "gantry/models/vision/pixtral_images.h"
#include "gantry/models/vision/square_images.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

std::shared_ptr<ImageEncoder> make_image_encoder(torch::nn::Module& root, const VisionSpec& spec, std::int64_t hidden,
                                                 double initializer_range) {
  if (spec.grid_tower) return std::make_shared<GridImages>(root, spec, initializer_range);
  if (spec.pixtral) return std::make_shared<PixtralImages>(root, spec, hidden, initializer_range);
  return std::make_shared<SquareImages>(root, spec, hidden, initializer_range);
}

torch::Tensor host_numbers(const torch::Tensor& entry) {
  const torch::Tensor known = on_host(entry);
  return known.defined() ? known : entry.cpu();
}

void check_feature_counts(const torch::Tensor& input_ids, std::int64_t image_token,
                          const std::vector<std::int64_t>& features) {
  const torch::Tensor counts = (input_ids == image_token).sum(1);
  for (std::int64_t sample = 0; sample < counts.size(0); ++sample) {
    const auto count = counts[sample].item<std::int64_t>();
    const std::int64_t expected = features.at(sample);
    if (count == expected) continue;
    throw InputError({"input_ids",
                      fmt::format("sample {} has {} image tokens ({}), but its images have {} features", sample, count,
                                  image_token, expected),
                      "one image token for each feature", "prepare input_ids with the processor of the model"});
  }
}

torch::Tensor numbered_images(const torch::Tensor& types) {
  const torch::Tensor is_image = (types == 1).to(torch::kInt64);
  const torch::Tensor before = torch::constant_pad_nd(is_image, {1, -1});
  return (is_image * (1 - before)).cumsum(1) * is_image;
}

}  // namespace gantry::models
