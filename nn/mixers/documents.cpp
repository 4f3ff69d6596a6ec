#include "gantry/nn/mixers/documents.h"

#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

torch::Tensor document_numbers(const torch::Tensor& documents) {
  if (!documents.defined()) return {};
  const std::int64_t later = documents.size(1) - 1;
  const torch::Tensor begins = documents.narrow(1, 1, later).ne(documents.narrow(1, 0, later));
  return torch::constant_pad_nd(begins.to(torch::kLong), {1, 0}).cumsum(1);
}

}  // namespace gantry::nn
