#include "gantry/nn/attention_masks.h"

#include <tuple>

#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

bool AttentionMasks::Wanted::operator==(const Wanted& other) const {
  return keep.is_same(other.keep) && documents.is_same(other.documents) && images.is_same(other.images) &&
         std::tie(kind, causal, window, queries, keys, type) ==
             std::tie(other.kind, other.causal, other.window, other.queries, other.keys, other.type);
}

torch::Tensor AttentionMasks::get(const Wanted& wanted, const std::function<torch::Tensor()>& make) {
  for (const auto& [known, mask] : made_)
    if (known == wanted) return mask;
  return made_.emplace_back(wanted, make()).second;
}

}  // namespace gantry::nn
