// Parts of tensors that Hugging Face's files store separately (models::TensorPart).
#pragma once

#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/placement.h"
#include "gantry/models/model_family.h"

namespace gantry {

inline Slice slice_of_part(const Shape& full, const models::TensorPart& part) {
  return apply_shards(full, part.shards);
}

// Shape of the stored tensor.
inline Shape shape_of_part(const Slice& slice) {
  const bool has_one = !slice.shape.empty() && slice.shape.front() == 1;
  return {slice.shape.begin() + (has_one ? 1 : 0), slice.shape.end()};
}

// This rank's part of a stored tensor. With one shard along a dim, the usual case, only that part is read.
torch::Tensor read_held(const SafetensorsFile& file, const std::string& stored, bool transposed,
                        const Placement& placement, const Coordinates& coordinates);

}  // namespace gantry
