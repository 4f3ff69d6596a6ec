// Sentence embeddings, with the arithmetic of sentence-transformers.
#pragma once

#include "gantry/models/described/bert_config.h"
#include "gantry/tensors/tensor.h"

namespace gantry::models {

// [B, S, H] -> [B, modes * H]. `hidden`: all tokens. `keep`: bool [B, S], the tokens that are not padding; undefined:
// all.
torch::Tensor sentence_embedding(const torch::Tensor& hidden, const torch::Tensor& keep, const SentencePooling& how);

}  // namespace gantry::models
