// The batch file of `gantry forward`.
#pragma once

#include <string>

#include "gantry/models/model_family.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::cli {

// The file's entries, which are those that the family reads and labels, with everything that `task` needs: labels that
// nobody gave are not counted. InputError for other entries, and for shapes that don't belong together.
TensorDict read_batch(const std::string& path, const models::ModelFamily& family, const std::string& task);

}  // namespace gantry::cli
