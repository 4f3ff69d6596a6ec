// data.format tensors: a safetensors file whose tensors [samples, ...] are the entries of a batch.
#pragma once

#include <memory>
#include <string>

#include "gantry/data/dataset.h"

namespace gantry {

// Each tensor is an entry of its name, in its type; the file is mapped. sequence_length() is that of input_ids
// [samples, tokens], and 0 without. InputError, naming the tensor, for what is no [samples, ...] of as many samples as
// the others, and for types that a batch has not. `where` names the path's place in the configuration.
std::unique_ptr<Dataset> open_tensor_file(const std::string& path, const std::string& where);

}  // namespace gantry
