// The element types of samples as LibTorch's.
#pragma once

#include <optional>
#include <string>

#include "gantry/data/number_type.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// LibTorch's type of a sample's numbers, and back: none for a type that a batch can't have.
torch::ScalarType scalar_type_of(NumberType type);
std::optional<NumberType> number_type_of(torch::ScalarType type);
// "bool, uint8, ...", for messages.
std::string number_type_names();

}  // namespace gantry
