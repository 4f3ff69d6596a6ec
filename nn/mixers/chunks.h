// Chunks of tokens: the operators of mixers multiply matrices within a chunk and hand a state from chunk to chunk.
#pragma once

#include <cstdint>

#include "gantry/nn/mixers/chunk_tokens.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// Results of an operator over tokens.
struct RecurrenceResult {
  torch::Tensor out;    // [samples, tokens, heads, size], of the shape and type of the values
  torch::Tensor state;  // after the last token, float32 or wider
};

// The type in which an operator computes: float32, or float64 for such tensors.
torch::ScalarType wide_type(const torch::Tensor& tensor);
// q / |q| of each head, with 1e-6 within the root, in wide_type().
torch::Tensor unit_heads(const torch::Tensor& heads);

// How `tokens` tokens are split into chunks of `size`, of which the last is padded.
struct Chunks {
  std::int64_t tokens, size;
  std::int64_t count() const { return (tokens + size - 1) / size; }
  // [samples, tokens, heads, ...] -> [samples, chunks, heads, size, ...] in wide_type(), padded with zeros.
  torch::Tensor split(const torch::Tensor& of_tokens) const;
  // [samples, chunks, heads, size, features] -> [samples, tokens, heads, features] in `type`.
  torch::Tensor join(const torch::Tensor& of_chunks, torch::ScalarType type) const;
};

// Which tokens of a chunk are of the same document, as bools that broadcast over heads; all undefined with one
// document.
struct ChunkDocuments {
  torch::Tensor same;        // [samples, chunks, 1, size, size]
  torch::Tensor from_start;  // [samples, chunks, 1, size]: of the document in which the chunk before ends
  torch::Tensor to_end;      // [samples, chunks, 1, size]: of the document in which this chunk ends
  torch::Tensor whole;       // [samples, chunks, 1]: the chunk begins and ends in the document of the one before
};
// documents: int [samples, tokens] as for document_numbers(), or undefined.
ChunkDocuments chunk_documents(const torch::Tensor& documents, const Chunks& chunks);
// values * mask; an undefined mask is of ones. The mask gets `further` dimensions of size 1.
torch::Tensor masked(const torch::Tensor& values, const torch::Tensor& mask, int further = 0);

// Decays of a head by one number per token, as factors from 0 to 1.
struct ChunkDecays {
  torch::Tensor within;      // [samples, chunks, heads, size, size]: from token j (last) to token i; 0 for j > i
  torch::Tensor from_start;  // [samples, chunks, heads, size]: from the end of the chunk before to token i
  torch::Tensor to_end;      // [samples, chunks, heads, size]: from token j to the end of the chunk
  torch::Tensor whole;       // [samples, chunks, heads]
};
// logarithms: [samples or 1, chunks, heads, size], at most 0. No exponent is above 0: differences come before exp.
ChunkDecays chunk_decays(const torch::Tensor& logarithms, const ChunkDocuments& documents);

}  // namespace gantry::nn
