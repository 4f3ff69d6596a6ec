// Documents of packed rows, as the operators of mixers compare them.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// documents: int [samples, tokens], in which a token begins a document if its value differs from the one before.
// Returns int64 [samples, tokens]: how many documents begin at tokens 1 up to and including this one. The first
// document of a row has 0 and continues the state that the row begins with. Undefined stays undefined.
torch::Tensor document_numbers(const torch::Tensor& documents);

}  // namespace gantry::nn
