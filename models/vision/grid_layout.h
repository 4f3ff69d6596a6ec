// The places of the patches of images of any size, for Qwen2.5-VL.
#pragma once

#include "gantry/models/described/vision_spec.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

// The patches of the images of each sample. An image has frames x height x width patches, in squares of merge x merge.
struct GridLayout {
  torch::Tensor places;                // int64 [samples, patches, 2]: row and column of each patch in its image
  torch::Tensor frames;                // int64 [samples, patches]: number of the frame, from 1; 0: padding
  torch::Tensor windows;               // the same for windows
  std::vector<std::int64_t> features;  // number of squares of each sample
};

// `grids`: image_grid_thw int64 [samples, images, 3] or [samples, 3] on the host, zeros for samples with fewer images.
// `patches`: the number of patches of a sample in the batch. Throws InputError if the images have more patches, or a
// side that `merge` does not divide.
GridLayout lay_out_grids(const torch::Tensor& grids, std::int64_t patches, const VisionSpec& spec);

// Returns position_ids [3, samples, tokens] of input_ids [samples, tokens] with images: time, row and column. Tokens
// that attention_mask leaves out have 1. With document_ids, positions start again in each document. `grids`: [samples,
// images, 3] or [samples, 3].
torch::Tensor grid_positions(const TensorDict& batch, const torch::Tensor& grids, const VisionSpec& spec);

// Converts the entries of Hugging Face's processor, pixel_values [patches of all images, ...] and image_grid_thw
// [images, 3], to entries with the samples first, and adds position_ids [3, samples, tokens] unless the batch has them.
TensorDict grids_by_sample(TensorDict batch, const VisionSpec& spec);

}  // namespace gantry::models
