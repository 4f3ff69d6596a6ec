#include "gantry/models/vision/image_ranges.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

std::vector<ImageRange> image_ranges(const torch::Tensor& input_ids, std::int64_t image_token,
                                     const std::vector<std::int64_t>& features) {
  const torch::Tensor tokens = (input_ids == image_token).sum(1);
  const auto images = static_cast<std::int64_t>(features.size());
  std::vector<ImageRange> ranges;
  std::int64_t image = 0, left = 0;
  for (std::int64_t sample = 0; sample < tokens.size(0); ++sample) {
    const std::int64_t first = image;
    for (left += tokens[sample].item<std::int64_t>(); left > 0 && image < images; ++image)
      left -= features[static_cast<std::size_t>(image)];
    ranges.push_back({first, image - first});
    if (left != 0) break;
  }
  if (left == 0 && image == images) return ranges;
  std::int64_t all = 0;
  for (const std::int64_t count : features) all += count;
  throw InputError({"pixel_values",
                    fmt::format("there are {} images with {} features, which differ from the {} image tokens ({}) in "
                                "input_ids",
                                images, all, tokens.sum().item<std::int64_t>(), image_token),
                    "the images of the image tokens, in their order", "prepare the batch with the model's processor"});
}

torch::Tensor padded_by_sample(const torch::Tensor& images, const std::vector<ImageRange>& ranges) {
  std::int64_t most = 0;
  for (const ImageRange& range : ranges) most = std::max(most, range.count);
  std::vector<std::int64_t> shape = images.sizes().vec();
  shape[0] = most;
  shape.insert(shape.begin(), static_cast<std::int64_t>(ranges.size()));
  torch::Tensor padded = torch::zeros(shape, images.options());
  for (std::size_t sample = 0; sample < ranges.size(); ++sample) {
    const auto [first, count] = ranges[sample];
    padded[static_cast<std::int64_t>(sample)].narrow(0, 0, count).copy_(images.narrow(0, first, count));
  }
  return padded;
}

}  // namespace gantry::models
