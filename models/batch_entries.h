// The entries of a batch in a file: their names, types and shapes.
#pragma once

#include <string>

#include "gantry/models/model_family.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

// True for the entries that are floating-point tensors: pixel_values and input_features.
bool is_real_entry(const std::string& name);

// Throws InputError if the batch has an entry that is neither an input of the family nor a label of `task`
// (ModelFamily::task). Throws it also if the type or the shape of an entry does not fit the first input of the family,
// which the batch must have. Values are not read. Labels of classes may have any type, and any shape with the samples
// first, because the loss compares them with the logits. `where`: of the batch, for errors.
void check_batch_entries(const TensorDict& batch, const ModelFamily& family, const std::string& task,
                         const std::string& where);

}  // namespace gantry::models
