// Samples as rows of numbers: one row for each type.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Numbers of each type in a sample.
std::map<NumberType, std::int64_t> widths_of(const std::vector<SampleEntry>& entries);

// The entries as tensors [samples, ...]. `rows`: [samples, width] of each type.
TensorDict tensors_of(const std::vector<SampleEntry>& entries, const std::map<NumberType, torch::Tensor>& rows);

// The tensors of one sample, without a dimension of samples. `write` is called once for each type.
TensorDict sample_of(const std::vector<SampleEntry>& entries, const std::function<void(const NumberRow&)>& write);

}  // namespace gantry
