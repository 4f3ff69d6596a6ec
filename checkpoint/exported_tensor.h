// The tensors of a checkpoint that an export writes: weights, or their averages (`train.ema`).
#pragma once

#include <string>

#include "gantry/checkpoint/checkpoint_files.h"

namespace gantry {

// Throws CheckpointError if the checkpoint in `folder` has no averages.
void require_averages(const std::string& folder, const Manifest& manifest);

// Returns the stored parameter of the model, or its average. Parameters that were not trained have no average
// and are returned themselves. Throws CheckpointError if the checkpoint lacks the parameter.
const ManifestTensor& exported_tensor(const std::string& folder, const Manifest& manifest, const std::string& name,
                                      bool average);

}  // namespace gantry
