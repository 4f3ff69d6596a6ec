// The images of each sample, if the images of all samples are stored one after the other.
#pragma once

#include <vector>

#include "gantry/tensors/tensor.h"

namespace gantry::models {

struct ImageRange {
  std::int64_t first = 0, count = 0;
};

// Returns the images of each row of input_ids [samples, tokens], which has one token `image_token` for each feature.
// `features`: the number of features of each image. Throws InputError if there are other numbers of images than tokens.
std::vector<ImageRange> image_ranges(const torch::Tensor& input_ids, std::int64_t image_token,
                                     const std::vector<std::int64_t>& features);

// Pads the rows of `images` that belong to a sample: [images, ...] -> [samples, most images of a sample, ...].
torch::Tensor padded_by_sample(const torch::Tensor& images, const std::vector<ImageRange>& ranges);

}  // namespace gantry::models
