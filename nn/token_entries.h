// The entries of a batch that describe tokens: attention_mask, position_ids and document_ids.
#pragma once

#include <string>

#include "gantry/tensors/tensor_dict.h"

namespace gantry::nn {

// Throws InputError for entries in a form that other programs use for packed documents, and that would be misread:
// segment_ids or seq_idx, and position_ids that restart in a sample, each without document_ids. Throws it also if
// attention_mask or document_ids do not have a column for each token of input_ids. `prefix`: of the names. Values are
// checked if they are known without reading from a device.
void check_token_entries(const TensorDict& batch, const std::string& prefix);

// Throws InputError if the mask has other values than 0 and 1, for example numbers of documents, or 0 and -1e9.
// `mask`: on the host. `name`: of the entry.
void check_mask_values(const torch::Tensor& mask, const std::string& name);

}  // namespace gantry::nn
