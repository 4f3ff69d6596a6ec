// The batch file of `gantry forward`.
#pragma once

#include <string>

#include "gantry/models/model_family.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::cli {

// Returns the entries of the file: inputs of the model family, and labels. Labels that `task` needs and that the file
// lacks are added with -100, which the loss ignores. Throws InputError like models::check_batch_entries().
TensorDict read_batch(const std::string& path, const models::ModelFamily& family, const std::string& task);

}  // namespace gantry::cli
