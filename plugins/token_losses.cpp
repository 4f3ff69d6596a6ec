#include "gantry/plugins/token_losses.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {

torch::Tensor token_losses(const torch::Tensor& logits, const torch::Tensor& labels, const SplitOutputs& split) {
  const auto dim = split.find("logits");
  if (dim == split.end()) return nn::token_losses(logits, labels);
  return nn::token_losses(logits, labels, *dim->second.group, dim->second.placement);
}

}  // namespace gantry
