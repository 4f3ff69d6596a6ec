// Parts of tensors that Hugging Face's files store apart (models::TensorPart).
#pragma once

#include "gantry/models/model_family.h"

namespace gantry {

inline Slice slice_of_part(const Shape& whole, const models::TensorPart& part) { return apply_cuts(whole, part.cuts); }

// The stored tensor's.
inline Shape shape_of_part(const Slice& slice) {
  const bool has_one = slice.shape.size() > 1 && slice.shape.front() == 1;
  return {slice.shape.begin() + (has_one ? 1 : 0), slice.shape.end()};
}

}  // namespace gantry
