// Batches of samples whose lengths differ.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Makes a batch of samples: each entry of the result is [samples, ...]. It may add and remove entries. Called from any
// thread, with at least one sample.
using Collate = std::function<TensorDict(const std::vector<TensorDict>& samples)>;

// Stacks the samples' tensors. Dimension 0 of the entries in `padding` is extended to the longest sample of the batch
// by this value, for example {{"input_ids", 0}, {"attention_mask", 0}, {"labels", kNotCounted}}. The returned function
// throws UsageError if the shapes of an entry differ otherwise.
Collate pad_to_longest(std::map<std::string, double> padding);

}  // namespace gantry
