// The content of model files, as one digest.
#pragma once

#include <string>
#include <vector>

#include "gantry/data/dataset.h"

namespace gantry {

// Returns the XXH3-128 of the files and of their sizes, as hexadecimal digits. Reads them in full, because two models
// may differ in a few tensors. `progress` is called with bytes. Throws InputError for a file that cannot be read.
std::string digest_of_files(const std::vector<std::string>& paths, const OpenProgress& progress);

// The same of the weights of a model's directory.
std::string digest_of_model(const std::string& directory, const OpenProgress& progress);

}  // namespace gantry
