// Images in the order of Hugging Face's processors, as entries of a batch with the samples first.
#pragma once

#include "gantry/models/described/vision_spec.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

// Converts pixel_values [images, ...] of all samples one after the other to [samples, images, ...], by the image tokens
// in input_ids; samples with fewer images are padded with zeros. One image in each sample, and images that already have
// the samples first, are returned unchanged. For images of any size, see grids_by_sample(). Throws InputError if the
// numbers of images and tokens contradict each other.
TensorDict images_by_sample(TensorDict batch, const VisionSpec& vision);

// The same with the entries that follow from tokens: token_type_ids if images attend in both directions, and
// position_ids [samples, tokens, 3] for images of any size in one sequence, which start again in each document.
TensorDict completed_images(TensorDict batch, const VisionSpec& vision);

}  // namespace gantry::models
