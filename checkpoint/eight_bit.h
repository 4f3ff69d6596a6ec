// Weights of eight bits with a scale for each row, as bitsandbytes stores them (LLM.int8(), arXiv 2208.07339).
#pragma once

#include <memory>
#include <optional>

#include "gantry/checkpoint/encoded_tensor.h"

namespace gantry {

// Names of the tensors that belong to the module of a weight.
inline constexpr const char *kEightBitScales = ".SCB", *kEightBitFormat = ".weight_format";

// A weight [rows, columns]: int8 codes, where 127 represents the scale of the row. `format`: a number; 0
// means that the codes are in the order of the weight. Throws InputError if the tensors have other types or
// shapes.
std::unique_ptr<EncodedTensor> eight_bit_tensor(TensorPlace codes, TensorPlace scales,
                                                const std::optional<TensorPlace>& format);

}  // namespace gantry
