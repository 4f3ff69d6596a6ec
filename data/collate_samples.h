// A batch of samples by a program's function.
#pragma once

#include <vector>

#include "gantry/data/collate.h"

namespace gantry {

// Throws UsageError if an entry of the result does not have the samples along dimension 0.
TensorDict collate_samples(const Collate& collate, const std::vector<TensorDict>& samples);

}  // namespace gantry
