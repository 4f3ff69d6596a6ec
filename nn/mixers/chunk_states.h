// States that are handed from chunk to chunk, one after the other. The loops are functions of autograd, whose backward
// is the same loop from the last chunk to the first.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

struct ChunkStates {
  torch::Tensor before;  // [samples, chunks, heads, rows, columns]: the state before each chunk
  torch::Tensor last;    // [samples, heads, rows, columns]: the state after the last chunk
};

// S' = decay S + local in each chunk. decay [samples or 1, chunks, heads], local [samples, chunks, heads, rows,
// columns], initial [samples, heads, rows, columns].
ChunkStates decayed_states(const torch::Tensor& decay, const torch::Tensor& local, const torch::Tensor& initial);

// Chunks of a delta rule, in which the state decides what is written: V' = U - W S and S' = decay S + K^T V'.
struct DeltaWrites {
  torch::Tensor decay;  // [samples, chunks, heads, keys or 1]
  torch::Tensor w;      // [samples, chunks, heads, size, keys]
  torch::Tensor u;      // [samples, chunks, heads, size, values]
  torch::Tensor keys;   // [samples, chunks, heads, size, keys], decayed to the end of the chunk
};
struct DeltaStates {
  ChunkStates states;    // rows: keys, columns: values
  torch::Tensor values;  // V', [samples, chunks, heads, size, values]
};
DeltaStates delta_states(const DeltaWrites& writes, const torch::Tensor& initial);

// `state` in the type of `like`, or zeros of `shape` if it is undefined.
torch::Tensor state_or_zeros(const torch::Tensor& state, torch::IntArrayRef shape, const torch::Tensor& like);

}  // namespace gantry::nn
