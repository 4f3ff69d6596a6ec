// Forward: a block of threads takes a block of tokens, and a thread takes pairs of tokens. Backward: a thread takes one
// channel of a block of tokens.
#include <cuda_runtime.h>

#include "gantry/tensors/kernels/cuda/recurrence_launches.h"

namespace gantry::kernels {
namespace {

constexpr int kPairThreads = 256, kChannelThreads = 64;

template <class A>
__global__ void pair_scores_kernel(ScoredTokens<A> of, ChannelScores<A> to) {
  const std::int64_t block = blockIdx.x, first = of.pair(block, 0, 0);
  for (std::int64_t pair = threadIdx.x; pair < of.tokens * of.tokens; pair += kPairThreads) {
    const std::int64_t later = pair / of.tokens, earlier = pair % of.tokens;
    const std::int64_t row = of.row(block, later), other = of.row(block, earlier);
    A of_query = 0, of_key = 0;
    for (std::int64_t i = 0; earlier <= later && i < of.channels; ++i) {
      const A decayed = exp_element(of.sums[row + i] - of.sums[other + i]) * of.key[other + i];
      of_query += of.query[row + i] * decayed;
      of_key += of.key[row + i] * decayed;
    }
    to.of_query[first + pair] = of_query;
    to.of_key[first + pair] = earlier < later ? of_key : A(0);
  }
}

template <class A>
__global__ void pair_scores_backward_kernel(ScoredTokens<A> of, ScoredGradients<A> to) {
  const std::int64_t block = blockIdx.x;
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.y) * kChannelThreads + threadIdx.x;
  if (channel >= of.channels) return;
  for (std::int64_t later = 0; later < of.tokens; ++later) {
    const std::int64_t at = of.row(block, later) + channel;
    const A query = of.query[at], key = of.key[at], sum = of.sums[at];
    const A of_own = to.of_query[of.pair(block, later, later)];
    A to_query = of_own * key, to_key = of_own * query, to_sum = 0;
    for (std::int64_t earlier = 0; earlier < later; ++earlier) {
      const std::int64_t other = of.row(block, earlier) + channel, pair = of.pair(block, later, earlier);
      const ScoreTerms<A> terms =
          score_terms(to.of_query[pair], to.of_key[pair], query, key, of.key[other], sum - of.sums[other]);
      to_query += terms.query;
      to_key += terms.later_key;
      to_sum += terms.sum;
      to.key[other] += terms.earlier_key;
      to.sums[other] -= terms.sum;
    }
    to.query[at] = to_query;
    to.key[at] = to_key;
    to.sums[at] = to_sum;
  }
}

const char* error_of_scores() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

template <class A>
const char* launch_channel_scores(const ScoredTokens<A>& of, const ChannelScores<A>& to, void* stream) {
  pair_scores_kernel<<<static_cast<unsigned>(of.blocks), kPairThreads, 0, static_cast<cudaStream_t>(stream)>>>(of, to);
  return error_of_scores();
}

template <class A>
const char* launch_channel_scores_backward(const ScoredTokens<A>& of, const ScoredGradients<A>& to, void* stream) {
  const dim3 blocks(static_cast<unsigned>(of.blocks),
                    static_cast<unsigned>((of.channels + kChannelThreads - 1) / kChannelThreads));
  pair_scores_backward_kernel<<<blocks, kChannelThreads, 0, static_cast<cudaStream_t>(stream)>>>(of, to);
  return error_of_scores();
}

template const char* launch_channel_scores(const ScoredTokens<float>&, const ChannelScores<float>&, void*);
template const char* launch_channel_scores(const ScoredTokens<double>&, const ChannelScores<double>&, void*);
template const char* launch_channel_scores_backward(const ScoredTokens<float>&, const ScoredGradients<float>&, void*);
template const char* launch_channel_scores_backward(const ScoredTokens<double>&, const ScoredGradients<double>&, void*);

}  // namespace gantry::kernels
