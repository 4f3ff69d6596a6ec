// Entries of batches in the form of Hugging Face's processors: the images of all texts one after the other.
#pragma once

#include <span>

#include "gantry/data/images/image_processor.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// pixel_values [images, colours, height, width], with ProcessorKind::kPixtral padded to the largest image, and
// image_sizes [images, 2]; with kGrid pixel_values [patches, numbers of a patch] and image_grid_thw [images, 3]. There
// may be no images.
TensorDict processor_entries(std::span<const ProcessedImage> images, const PatchSizes& sizes);

// The entries of several calls together.
TensorDict joined_entries(std::span<const TensorDict> parts);

}  // namespace gantry
