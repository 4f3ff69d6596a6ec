// Visits the tensors in an argument or a result of an operator: the value itself, or the elements of a list.
#pragma once

#include <optional>

#include <ATen/core/ivalue.h>

#include "gantry/tensors/tensor.h"

namespace gantry {

// Calls `each` for the tensors in order. Empty elements of an optional list are skipped.
template <class Each>
void for_each_tensor_of(const c10::IValue& value, const Each& each) {
  if (value.isTensor()) {
    each(value.toTensor());
  } else if (value.isTensorList()) {
    for (const torch::Tensor& tensor : value.toTensorVector()) each(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<torch::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) each(*tensor);
  }
}

}  // namespace gantry
