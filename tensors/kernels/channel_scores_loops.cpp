#include "gantry/tensors/kernels/channel_scores_loops.h"

#include <algorithm>
#include <vector>

#include "gantry/tensors/kernels/host_loops.h"

namespace gantry::kernels {
namespace {

constexpr int kScoreLanes = 16;  // channels or tokens side by side
constexpr int kFarRows = 4;      // tokens whose scores are added up together
// Tokens whose scores with each other are computed from the decay between the two. Their scores with the tokens before
// them are products of two decays, to and from the border between. No exponent of either is above 0.
constexpr std::int64_t kNearTokens = 16;

template <class A>
GANTRY_IN_LOOPS A sum_of_score_lanes(A* lanes) {
  for (int half = kScoreLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

// kNearTokens tokens of a block, and the tokens before them with their decays to the border.
template <class A>
struct NearTokens {
  const ScoredTokens<A>& of;
  std::int64_t block, begin = 0, end = 0;
  std::vector<A> query, key, earlier;           // decayed: [kNearTokens, channels] twice, [tokens, channels]
  std::vector<A> to_query, to_key, to_earlier;  // their gradients

  NearTokens(const ScoredTokens<A>& tokens, std::int64_t of_block, bool with_gradients)
      : of(tokens),
        block(of_block),
        query(kNearTokens * of.channels),
        key(query.size()),
        earlier(of.tokens * of.channels) {
    if (!with_gradients) return;
    to_query.resize(query.size());
    to_key.resize(query.size());
    to_earlier.resize(earlier.size());
  }
  std::int64_t border() const { return of.row(block, begin - 1); }
  std::int64_t near_row(std::int64_t token) const { return (token - begin) * of.channels; }

  GANTRY_IN_LOOPS void take(std::int64_t first) {
    begin = first;
    end = std::min(first + kNearTokens, of.tokens);
    if (begin == 0) return;
    const A* const sums = of.sums + border();
    for (std::int64_t token = begin; token < end; ++token) {
      const std::int64_t row = of.row(block, token), to = near_row(token);
      for (std::int64_t i = 0; i < of.channels; ++i) {
        const A factor = exp_element(of.sums[row + i] - sums[i]);
        query[to + i] = of.query[row + i] * factor;
        key[to + i] = of.key[row + i] * factor;
      }
    }
    for (std::int64_t token = 0; token < begin; ++token) {
      const std::int64_t row = of.row(block, token), to = token * of.channels;
      for (std::int64_t i = 0; i < of.channels; ++i)
        earlier[to + i] = of.key[row + i] * exp_element(sums[i] - of.sums[row + i]);
    }
  }
};

template <class A>
GANTRY_IN_LOOPS void add_scores(const ScoredTokens<A>& of, std::int64_t later, std::int64_t earlier, int count,
                                A* __restrict__ of_query, A* __restrict__ of_key) {
  for (int i = 0; i < count; ++i) {
    const A decayed = exp_element(of.sums[later + i] - of.sums[earlier + i]) * of.key[earlier + i];
    of_query[i] += of.query[later + i] * decayed;
    of_key[i] += of.key[later + i] * decayed;
  }
}

// The scores of a token with itself and the tokens before it in `near`, from the decay between the two.
template <class A>
GANTRY_IN_LOOPS void near_scores(const NearTokens<A>& near, const ChannelScores<A>& to, std::int64_t later) {
  const ScoredTokens<A>& of = near.of;
  const std::int64_t row = of.row(near.block, later);
  for (std::int64_t earlier = near.begin; earlier <= later; ++earlier) {
    const std::int64_t other = of.row(near.block, earlier);
    A of_query[kScoreLanes] = {}, of_key[kScoreLanes] = {};
    for (std::int64_t channel = 0; channel < of.channels; channel += kScoreLanes) {
      const auto count = static_cast<int>(std::min<std::int64_t>(kScoreLanes, of.channels - channel));
      const std::int64_t at = row + channel, from = other + channel;
      if (count == kScoreLanes)
        add_scores(of, at, from, kScoreLanes, of_query, of_key);
      else
        add_scores(of, at, from, count, of_query, of_key);
    }
    const std::int64_t pair = of.pair(near.block, later, earlier);
    to.of_query[pair] = sum_of_score_lanes(of_query);
    to.of_key[pair] = earlier < later ? sum_of_score_lanes(of_key) : A(0);
  }
}

// The scores of kFarRows tokens of `near` with kScoreLanes tokens before the border. `turned`: [channels, tokens].
template <class A>
GANTRY_IN_LOOPS void far_scores(const NearTokens<A>& near, const ChannelScores<A>& to, const A* turned,
                                std::int64_t later, std::int64_t earlier) {
  const ScoredTokens<A>& of = near.of;
  A of_query[kFarRows][kScoreLanes] = {}, of_key[kFarRows][kScoreLanes] = {};
  const A *query[kFarRows], *key[kFarRows];
  for (int i = 0; i < kFarRows; ++i) {
    const std::int64_t row = near.near_row(std::min(later + i, near.end - 1));
    query[i] = near.query.data() + row;
    key[i] = near.key.data() + row;
  }
  for (std::int64_t channel = 0; channel < of.channels; ++channel) {
    const A* const keys = turned + channel * of.tokens + earlier;
    for (int i = 0; i < kFarRows; ++i)
      for (int lane = 0; lane < kScoreLanes; ++lane) {
        of_query[i][lane] += query[i][channel] * keys[lane];
        of_key[i][lane] += key[i][channel] * keys[lane];
      }
  }
  for (int i = 0; i < kFarRows && later + i < near.end; ++i) {
    const std::int64_t pair = of.pair(near.block, later + i, earlier);
    std::copy(of_query[i], of_query[i] + kScoreLanes, to.of_query + pair);
    std::copy(of_key[i], of_key[i] + kScoreLanes, to.of_key + pair);
  }
}

template <class A>
GANTRY_IN_LOOPS void score_tokens(const ScoredTokens<A>& of, const ChannelScores<A>& to, std::int64_t block) {
  static_assert(kNearTokens % kScoreLanes == 0);
  NearTokens<A> near(of, block, /*with_gradients=*/false);
  std::vector<A> turned(of.channels * of.tokens);
  const std::int64_t begin = of.pair(block, 0, 0), count = of.tokens * of.tokens;
  for (A* scores : {to.of_query, to.of_key}) std::fill(scores + begin, scores + begin + count, A(0));
  for (std::int64_t first = 0; first < of.tokens; first += kNearTokens) {
    near.take(first);
    for (std::int64_t token = 0; token < first; ++token)
      for (std::int64_t i = 0; i < of.channels; ++i)
        turned[i * of.tokens + token] = near.earlier[token * of.channels + i];
    for (std::int64_t later = first; later < near.end; later += kFarRows)
      for (std::int64_t earlier = 0; earlier < first; earlier += kScoreLanes)
        far_scores(near, to, turned.data(), later, earlier);
    for (std::int64_t later = first; later < near.end; ++later) near_scores(near, to, later);
  }
}

// The gradients of tokens near each other.
template <class A>
GANTRY_IN_LOOPS void near_backward(const NearTokens<A>& near, const ScoredGradients<A>& to) {
  const ScoredTokens<A>& of = near.of;
  for (std::int64_t later = near.begin; later < near.end; ++later) {
    const std::int64_t row = of.row(near.block, later);
    const A of_own = to.of_query[of.pair(near.block, later, later)];
#pragma GCC ivdep  // the gradients are none of the inputs
    for (std::int64_t i = 0; i < of.channels; ++i) {
      to.query[row + i] += of_own * of.key[row + i];
      to.key[row + i] += of_own * of.query[row + i];
    }
    for (std::int64_t earlier = near.begin; earlier < later; ++earlier) {
      const std::int64_t other = of.row(near.block, earlier), pair = of.pair(near.block, later, earlier);
      const A of_query = to.of_query[pair], of_key = to.of_key[pair];
#pragma GCC ivdep  // the rows of two tokens
      for (std::int64_t i = 0; i < of.channels; ++i) {
        const ScoreTerms<A> terms = score_terms(of_query, of_key, of.query[row + i], of.key[row + i], of.key[other + i],
                                                of.sums[row + i] - of.sums[other + i]);
        to.query[row + i] += terms.query;
        to.key[row + i] += terms.later_key;
        to.key[other + i] += terms.earlier_key;
        to.sums[row + i] += terms.sum;
        to.sums[other + i] -= terms.sum;
      }
    }
  }
}

// The gradients of the decayed rows from the scores with earlier tokens.
template <class A>
GANTRY_IN_LOOPS void rows_backward(NearTokens<A>& near, const ScoredGradients<A>& to) {
  const ScoredTokens<A>& of = near.of;
  for (std::vector<A>* rows : {&near.to_query, &near.to_key, &near.to_earlier})
    std::fill(rows->begin(), rows->end(), A(0));
  for (std::int64_t later = near.begin; later < near.end; ++later) {
    const std::int64_t row = near.near_row(later);
    const A *const query = near.query.data() + row, *const key = near.key.data() + row;
    A *const to_query = near.to_query.data() + row, *const to_key = near.to_key.data() + row;
    for (std::int64_t token = 0; token < near.begin; ++token) {
      const std::int64_t pair = of.pair(near.block, later, token);
      const A of_query = to.of_query[pair], of_key = to.of_key[pair];
      const A* const earlier = near.earlier.data() + token * of.channels;
      A* const to_earlier = near.to_earlier.data() + token * of.channels;
#pragma GCC ivdep  // five buffers
      for (std::int64_t i = 0; i < of.channels; ++i) {
        to_query[i] += of_query * earlier[i];
        to_key[i] += of_key * earlier[i];
        to_earlier[i] += of_query * query[i] + of_key * key[i];
      }
    }
  }
}

// The gradients of the inputs from those of the decayed rows.
template <class A>
GANTRY_IN_LOOPS void decays_backward(const NearTokens<A>& near, const ScoredGradients<A>& to) {
  const ScoredTokens<A>& of = near.of;
  const A* const sums = of.sums + near.border();
  A* const to_border = to.sums + near.border();
  for (std::int64_t token = near.begin; token < near.end; ++token) {
    const std::int64_t row = of.row(near.block, token), from = near.near_row(token);
    const A *const to_query = near.to_query.data() + from, *const to_key = near.to_key.data() + from;
#pragma GCC ivdep  // the border is before the tokens
    for (std::int64_t i = 0; i < of.channels; ++i) {
      const A factor = exp_element(of.sums[row + i] - sums[i]);
      const A sum = factor * (to_query[i] * of.query[row + i] + to_key[i] * of.key[row + i]);
      to.query[row + i] += to_query[i] * factor;
      to.key[row + i] += to_key[i] * factor;
      to.sums[row + i] += sum;
      to_border[i] -= sum;
    }
  }
  for (std::int64_t token = 0; token < near.begin; ++token) {
    const std::int64_t row = of.row(near.block, token);
    const A *const earlier = near.earlier.data() + token * of.channels, *const to_earlier = near.to_earlier.data() +
                                                                                            token * of.channels;
#pragma GCC ivdep  // the gradients are none of the inputs
    for (std::int64_t i = 0; i < of.channels; ++i)
      to.key[row + i] += to_earlier[i] * exp_element(sums[i] - of.sums[row + i]);
    if (token == near.begin - 1) continue;  // this token is the border
#pragma GCC ivdep                           // the rows of two tokens
    for (std::int64_t i = 0; i < of.channels; ++i) {
      const A sum = to_earlier[i] * earlier[i];
      to.sums[row + i] -= sum;
      to_border[i] += sum;
    }
  }
}

template <class A>
GANTRY_IN_LOOPS void score_tokens_backward(const ScoredTokens<A>& of, const ScoredGradients<A>& to,
                                           std::int64_t block) {
  const std::int64_t begin = of.row(block, 0), count = of.tokens * of.channels;
  for (A* gradient : {to.query, to.key, to.sums}) std::fill(gradient + begin, gradient + begin + count, A(0));
  NearTokens<A> near(of, block, /*with_gradients=*/true);
  for (std::int64_t first = 0; first < of.tokens; first += kNearTokens) {
    near.take(first);
    near_backward(near, to);
    if (first == 0) continue;
    rows_backward(near, to);
    decays_backward(near, to);
  }
}

}  // namespace

GANTRY_HOST_LOOPS void score_block(const ScoredTokens<float>& of, const ChannelScores<float>& to, std::int64_t block) {
  score_tokens(of, to, block);
}
GANTRY_HOST_LOOPS void score_block(const ScoredTokens<double>& of, const ChannelScores<double>& to,
                                   std::int64_t block) {
  score_tokens(of, to, block);
}
GANTRY_HOST_LOOPS void score_block_backward(const ScoredTokens<float>& of, const ScoredGradients<float>& to,
                                            std::int64_t block) {
  score_tokens_backward(of, to, block);
}
GANTRY_HOST_LOOPS void score_block_backward(const ScoredTokens<double>& of, const ScoredGradients<double>& to,
                                            std::int64_t block) {
  score_tokens_backward(of, to, block);
}

}  // namespace gantry::kernels
