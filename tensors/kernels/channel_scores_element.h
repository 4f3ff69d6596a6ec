// The scores of two tokens whose keys decay by channels, for host and device: sum_d q_id k_jd e^{G_id - G_jd}, and the
// same of two keys.
#pragma once

#include <cstdint>

#include "gantry/tensors/kernels/exp_element.h"
#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

// Contiguous tensors [blocks, tokens, channels].
template <class A>
struct ScoredTokens {
  std::int64_t blocks = 0, tokens = 0, channels = 0;
  const A *query = nullptr, *key = nullptr;
  const A* sums = nullptr;  // G, the logarithm of the decay up to a token; it does not increase

  GANTRY_HOST_DEVICE std::int64_t row(std::int64_t block, std::int64_t token) const {
    return (block * tokens + token) * channels;
  }
  GANTRY_HOST_DEVICE std::int64_t pair(std::int64_t block, std::int64_t later, std::int64_t earlier) const {
    return (block * tokens + later) * tokens + earlier;
  }
};

// [blocks, tokens, tokens], with the later token first. Scores with later keys, and of a key with itself, are zero.
template <class A>
struct ChannelScores {
  A *of_query = nullptr, *of_key = nullptr;
};

// Gradients [blocks, tokens, channels].
template <class A>
struct ScoredGradients {
  const A *of_query = nullptr, *of_key = nullptr;  // gradients of the scores
  A *query = nullptr, *key = nullptr, *sums = nullptr;
};

// The terms of a pair in the gradients of one channel. That of the sum has the other sign for the earlier token.
template <class A>
struct ScoreTerms {
  A query, later_key, earlier_key, sum;
};

template <class A>
GANTRY_HOST_DEVICE ScoreTerms<A> score_terms(A of_query, A of_key, A query, A later_key, A earlier_key, A difference) {
  const A factor = exp_element(difference), decayed = factor * earlier_key;
  const A both = of_query * query + of_key * later_key;
  return {of_query * decayed, of_key * decayed, factor * both, decayed * both};
}

}  // namespace gantry::kernels
