// Whether the slices that a manifest lists make up their tensor.
#pragma once

#include "gantry/checkpoint/format/manifest.h"

namespace gantry {

// How the slices cover the tensor.
Covering covering_of(const ManifestTensor& tensor);

// Every element of the tensor in exactly one slice. CheckpointError.
void check_tiling(const ManifestTensor& tensor);

}  // namespace gantry
