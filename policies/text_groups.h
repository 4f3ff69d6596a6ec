// Samples that consist of several texts.
#pragma once

#include "gantry/policies/model_split.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// For BatchUse::tokens_per_sample: the tokens of one of the texts [samples, texts, tokens].
inline std::int64_t tokens_of_texts(const TensorDict& batch) {
  const torch::Tensor ids = batch.get("input_ids");
  return ids.defined() && ids.dim() == 3 ? ids.size(2) : BatchUse().tokens_of(batch);
}

}  // namespace gantry
