// data.format tensors: a safetensors file whose tensors [samples, ...] are the entries of a batch.
#pragma once

#include <memory>
#include <string>

#include "gantry/data/dataset.h"

namespace gantry {

// Each tensor is an entry with its name and type. The file is mapped. sequence_length() is the number of
// tokens in input_ids [samples, tokens]; 0 without this tensor. `where`: the key of the path in the
// configuration. Throws InputError that names the tensor if it is not [samples, ...] with the same number of
// samples as the others, or if batches do not support its type.
std::unique_ptr<Dataset> open_tensor_file(const std::string& path, const std::string& where);

}  // namespace gantry
