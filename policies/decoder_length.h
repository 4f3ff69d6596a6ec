// Tokens of a batch whose decoder's are counted, and those that ranks share of them.
#pragma once

#include <cstdint>

#include "gantry/policies/token_streams.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Of each sample; 0 where the batch does not say.
inline std::int64_t decoder_length(const TensorDict& batch) {
  for (const char* name : {"decoder_input_ids", "labels"})
    if (const torch::Tensor ids = batch.get(name); ids.defined() && ids.dim() == 2) return ids.size(1);
  return 0;
}

inline TokenStream encoder_stream(const TensorDict& batch) {
  const torch::Tensor text = batch.get("input_ids");
  return {.tokens = text.defined() && text.dim() == 2 ? text.size(1) : 0, .entries = {"input_ids", "attention_mask"}};
}

inline TokenStream decoder_stream(const TensorDict& batch) {
  return {.prefix = "decoder_",
          .tokens = decoder_length(batch),
          .causal = true,
          .entries = {"decoder_input_ids", "decoder_attention_mask", "labels"}};
}

}  // namespace gantry
