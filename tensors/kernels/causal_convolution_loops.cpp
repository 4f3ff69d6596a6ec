#include "gantry/tensors/kernels/causal_convolution_loops.h"

#include <algorithm>
#include <vector>

#include "gantry/tensors/kernels/host_loops.h"

namespace gantry::kernels {
namespace {

constexpr std::int64_t kTerms = 4;  // products that are added together, so that sums are read and written less often

// Rows of `count` numbers. A product with a missing row is zero.
template <class A, class T>
struct RowProducts {
  const A* by[kTerms];
  const T* of[kTerms];

  RowProducts(const A* no_by, const T* no_of) {
    std::fill(by, by + kTerms, no_by);
    std::fill(of, of + kTerms, no_of);
  }
  GANTRY_IN_LOOPS void add_to(A* __restrict__ sums, std::int64_t count) const {
    const A *const by0 = by[0], *const by1 = by[1], *const by2 = by[2], *const by3 = by[3];
    const T *const of0 = of[0], *const of1 = of[1], *const of2 = of[2], *const of3 = of[3];
    for (std::int64_t i = 0; i < count; ++i)
      sums[i] += (by0[i] * static_cast<A>(of0[i]) + by1[i] * static_cast<A>(of1[i])) +
                 (by2[i] * static_cast<A>(of2[i]) + by3[i] * static_cast<A>(of3[i]));
  }
};

// Some channels of a piece of tokens of a sample.
template <class T, class A>
struct ConvolvedPiece {
  static constexpr std::int64_t kMostChannels = 256;  // so that the slopes stay in a cache

  const ConvolutionInputs<T, A>& of;
  std::int64_t sample, piece, first = 0, channels = 0;
  std::vector<A> sums, slopes;  // [channels], [tokens of the piece and taps - 1 after it, channels]
  std::vector<T> no_tokens;     // zeros
  std::vector<A> no_slopes;     // zeros

  ConvolvedPiece(const ConvolutionInputs<T, A>& inputs, std::int64_t of_sample, std::int64_t number)
      : of(inputs),
        sample(of_sample),
        piece(number),
        sums(kMostChannels),
        slopes((of.piece + of.taps - 1) * kMostChannels),
        no_tokens(kMostChannels, T(0.0F)),
        no_slopes(kMostChannels) {}

  void take_channels(std::int64_t begin) {
    first = begin;
    channels = std::min(kMostChannels, of.channels - begin);
  }
  std::int64_t begin() const { return piece * of.piece; }
  std::int64_t end() const { return std::min(begin() + of.piece, of.tokens); }
  // One after the last token that reads tokens of the piece.
  std::int64_t last_reader() const { return std::min(begin() + of.piece + of.taps - 1, of.tokens); }
  // The index of the channels in a tensor [samples, tokens, channels].
  std::int64_t row(std::int64_t token) const { return (sample * of.tokens + token) * of.channels + first; }
  const T* input(std::int64_t token) const { return of.row(sample, token) + first; }
  const A* tap(std::int64_t back) const { return of.tap(back) + first; }
  const A* slope(std::int64_t token) const { return slopes.data() + (token - begin()) * channels; }

  // Prefetches the numbers of a later token: the channels of two tokens are too far apart for the processor to do so.
  GANTRY_IN_LOOPS void prefetch(const T* tensor, std::int64_t token) const {
    constexpr std::int64_t kLine = 64 / sizeof(T), kAhead = 2;
    if (token + kAhead >= of.tokens) return;
    for (std::int64_t i = 0; i < channels; i += kLine) __builtin_prefetch(tensor + row(token + kAhead) + i);
  }

  GANTRY_IN_LOOPS void convolve(std::int64_t token) {
    prefetch(of.x, token);
    if (of.bias)
      std::copy(of.bias + first, of.bias + first + channels, sums.begin());
    else
      std::fill(sums.begin(), sums.begin() + channels, A(0));
    const std::int64_t earlier = of.earlier(sample, token);
    for (std::int64_t begin = 0; begin <= earlier; begin += kTerms) {
      RowProducts<A, T> terms(no_slopes.data(), no_tokens.data());
      for (std::int64_t back = begin; back <= std::min(earlier, begin + kTerms - 1); ++back) {
        terms.by[back - begin] = tap(back);
        terms.of[back - begin] = input(token - back);
      }
      terms.add_to(sums.data(), channels);
    }
  }
};

template <class T, class A>
GANTRY_IN_LOOPS void convolve_tokens(ConvolvedPiece<T, A>& piece, T* out) {
  const A* const sums = piece.sums.data();
  for (std::int64_t token = piece.begin(); token < piece.end(); ++token) {
    piece.convolve(token);
    T* const row = out + piece.row(token);
    if (piece.of.silu)
      for (std::int64_t i = 0; i < piece.channels; ++i) row[i] = static_cast<T>(silu(sums[i]));
    else
      for (std::int64_t i = 0; i < piece.channels; ++i) row[i] = static_cast<T>(sums[i]);
  }
}

// The gradients of the sums of all tokens that read tokens of the piece.
template <class T, class A>
GANTRY_IN_LOOPS void find_slopes(ConvolvedPiece<T, A>& piece, const T* of_out) {
  const A* const sums = piece.sums.data();
  for (std::int64_t token = piece.begin(); token < piece.last_reader(); ++token) {
    const T* const row = of_out + piece.row(token);
    piece.prefetch(of_out, token);
    A* const slopes = piece.slopes.data() + (token - piece.begin()) * piece.channels;
    if (piece.of.silu) {
      piece.convolve(token);
      for (std::int64_t i = 0; i < piece.channels; ++i) slopes[i] = static_cast<A>(row[i]) * silu_slope(sums[i]);
    } else {
      for (std::int64_t i = 0; i < piece.channels; ++i) slopes[i] = static_cast<A>(row[i]);
    }
  }
}

// The gradient of a token, which may be one of `past`: its products with the tokens that read it.
template <class T, class A>
GANTRY_IN_LOOPS void token_gradient(const ConvolvedPiece<T, A>& piece, std::int64_t token, A* to) {
  const std::int64_t taps = piece.of.taps;
  std::fill(to, to + piece.channels, A(0));
  for (std::int64_t begin = 0; begin < taps; begin += kTerms) {
    RowProducts<A, A> terms(piece.no_slopes.data(), piece.no_slopes.data());
    for (std::int64_t back = begin; back < std::min(taps, begin + kTerms); ++back) {
      const std::int64_t reader = token + back;
      if (reader < 0 || reader >= piece.last_reader() || piece.of.earlier(piece.sample, reader) < back) continue;
      terms.by[back - begin] = piece.tap(back);
      terms.of[back - begin] = piece.slope(reader);
    }
    terms.add_to(to, piece.channels);
  }
}

template <class T, class A>
GANTRY_IN_LOOPS void tap_gradient(const ConvolvedPiece<T, A>& piece, std::int64_t back, A* to) {
  std::fill(to, to + piece.channels, A(0));
  for (std::int64_t begin = piece.begin(); begin < piece.end(); begin += kTerms) {
    RowProducts<A, T> terms(piece.no_slopes.data(), piece.no_tokens.data());
    for (std::int64_t token = begin; token < std::min(piece.end(), begin + kTerms); ++token) {
      if (piece.of.earlier(piece.sample, token) < back) continue;
      terms.by[token - begin] = piece.slope(token);
      terms.of[token - begin] = piece.input(token - back);
    }
    terms.add_to(to, piece.channels);
  }
}

template <class T, class A>
GANTRY_IN_LOOPS void bias_gradient(const ConvolvedPiece<T, A>& piece, A* __restrict__ to) {
  std::fill(to, to + piece.channels, A(0));
  for (std::int64_t token = piece.begin(); token < piece.end(); ++token) {
    const A* const slopes = piece.slope(token);
    for (std::int64_t i = 0; i < piece.channels; ++i) to[i] += slopes[i];
  }
}

template <class T, class A>
GANTRY_IN_LOOPS void convolve_tokens_backward(ConvolvedPiece<T, A>& piece, const ConvolutionGradients<T, A>& to) {
  const ConvolutionInputs<T, A>& of = piece.of;
  const std::int64_t sums_row = piece.sample * of.pieces() + piece.piece, earlier = of.taps - 1;
  find_slopes(piece, to.out);
  for (std::int64_t token = piece.begin(); token < piece.end(); ++token)
    token_gradient(piece, token, to.x + piece.row(token));
  for (std::int64_t back = 0; back < of.taps; ++back)
    tap_gradient(piece, back, to.weight + (sums_row * of.taps + earlier - back) * of.channels + piece.first);
  bias_gradient(piece, to.bias + sums_row * of.channels + piece.first);
  if (piece.begin() == 0)
    for (std::int64_t token = -earlier; token < 0; ++token)
      token_gradient(piece, token, to.past + (piece.sample * earlier + earlier + token) * of.channels + piece.first);
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types
#define GANTRY_CONVOLVE(T, A)                                                                               \
  GANTRY_HOST_LOOPS void convolve_piece(const ConvolutionInputs<T, A>& of, T* out, std::int64_t sample,     \
                                        std::int64_t number) {                                              \
    ConvolvedPiece<T, A> piece(of, sample, number);                                                         \
    for (std::int64_t first = 0; first < of.channels; first += piece.kMostChannels) {                       \
      piece.take_channels(first);                                                                           \
      convolve_tokens(piece, out);                                                                          \
    }                                                                                                       \
  }                                                                                                         \
  GANTRY_HOST_LOOPS void convolve_piece_backward(const ConvolutionInputs<T, A>& of,                         \
                                                 const ConvolutionGradients<T, A>& to, std::int64_t sample, \
                                                 std::int64_t number) {                                     \
    ConvolvedPiece<T, A> piece(of, sample, number);                                                         \
    for (std::int64_t first = 0; first < of.channels; first += piece.kMostChannels) {                       \
      piece.take_channels(first);                                                                           \
      convolve_tokens_backward(piece, to);                                                                  \
    }                                                                                                       \
  }
// NOLINTEND(bugprone-macro-parentheses)

GANTRY_CONVOLVE(float, float)
GANTRY_CONVOLVE(double, double)
GANTRY_CONVOLVE(c10::BFloat16, float)
GANTRY_CONVOLVE(c10::Half, float)

#undef GANTRY_CONVOLVE

}  // namespace gantry::kernels
