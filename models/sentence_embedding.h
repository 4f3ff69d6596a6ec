// Sentence embeddings, with the arithmetic of sentence-transformers.
#pragma once

#include "gantry/models/described/bert_config.h"
#include "gantry/tensors/tensor.h"

namespace gantry::models {

// [B, S, H] -> [B, modes * H]. `hidden`: all tokens. `keep`: bool [B, S], the tokens that are not padding; undefined:
// all.
torch::Tensor sentence_embedding(const torch::Tensor& hidden, const torch::Tensor& keep, const SentencePooling& how);

// Rows of length 1, along the last dimension.
torch::Tensor unit_length(const torch::Tensor& rows);

// The losses [B] of multiple negatives ranking (Henderson et al., arXiv 1705.00652) with cosines times 20, as in
// sentence-transformers. The first text of each sample is compared with the further texts of all samples. Its own
// second text is the right one. `own`: unit vectors [B, texts, H] of this replica; `all`: those of all replicas;
// `first`: index of this replica's first sample among them.
torch::Tensor ranking_losses(const torch::Tensor& own, const torch::Tensor& all, std::int64_t first);

}  // namespace gantry::models
