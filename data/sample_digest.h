// The content of the samples of a data set, as one digest.
#pragma once

#include <string>

#include "gantry/data/dataset.h"

namespace gantry {

// Opens the source and reads all its samples, in the order of the data set, with `workers` threads if they are slow to
// read. Returns the XXH3-128 of their entries with names, types, shapes and numbers, as hexadecimal digits. It does not
// depend on the batch size or the number of ranks. `progress` is called with bytes. Throws the errors of the source.
// Not collective.
std::string sample_digest(const SampleSource& source, int workers, const OpenProgress& progress);

}  // namespace gantry
