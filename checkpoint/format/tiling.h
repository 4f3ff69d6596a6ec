// Checks whether the slices that a manifest lists cover their tensor.
#pragma once

#include "gantry/checkpoint/format/manifest.h"

namespace gantry {

// Returns how the slices cover the tensor.
Covering covering_of(const ManifestTensor& tensor);

// Throws CheckpointError unless every element of the tensor is in exactly one slice.
void check_tiling(const ManifestTensor& tensor);

}  // namespace gantry
