// A causal depthwise convolution: its arguments, and the sum of a token in one channel, for host and device. T is the
// type of the tokens, and A the type of the sums.
#pragma once

#include <cstdint>

#include "gantry/tensors/kernels/exp_element.h"
#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

// Contiguous tensors.
template <class T, class A>
struct ConvolutionInputs {
  std::int64_t samples = 0, tokens = 0, channels = 0, taps = 0;
  const T* x = nullptr;       // [samples, tokens, channels]
  const T* past = nullptr;    // [samples, taps - 1, channels]: the tokens before; null: zeros
  const A* weight = nullptr;  // [taps, channels]; the last tap multiplies the token itself
  const A* bias = nullptr;    // [channels]; null: zeros
  // [samples, tokens]: number of earlier tokens of the same document; null: no limit
  const int* reach = nullptr;
  bool silu = false;
  std::int64_t piece = 0;  // number of tokens that are convolved together

  GANTRY_HOST_DEVICE std::int64_t pieces() const { return (tokens + piece - 1) / piece; }
  // Number of earlier tokens that a token reads.
  GANTRY_HOST_DEVICE std::int64_t earlier(std::int64_t sample, std::int64_t token) const {
    std::int64_t count = taps - 1;
    if (!past && token < count) count = token;
    if (reach && reach[sample * tokens + token] < count) count = reach[sample * tokens + token];
    return count;
  }
  // The channels of a token; tokens of `past` are negative.
  GANTRY_HOST_DEVICE const T* row(std::int64_t sample, std::int64_t token) const {
    return token < 0 ? past + (sample * (taps - 1) + taps - 1 + token) * channels
                     : x + (sample * tokens + token) * channels;
  }
  GANTRY_HOST_DEVICE const A* tap(std::int64_t back) const { return weight + (taps - 1 - back) * channels; }
};

// Gradients. Those of weight and bias are sums over the tokens of a piece.
template <class T, class A>
struct ConvolutionGradients {
  const T* out = nullptr;  // [samples, tokens, channels]
  A* x = nullptr;          // [samples, tokens, channels]
  A* weight = nullptr;     // [samples, pieces, taps, channels]
  A* bias = nullptr;       // [samples, pieces, channels]
  A* past = nullptr;       // [samples, taps - 1, channels]
};

template <class A>
GANTRY_HOST_DEVICE A silu(A x) {
  return x * sigmoid_element(x);
}
template <class A>
GANTRY_HOST_DEVICE A silu_slope(A x) {
  const A sigmoid = sigmoid_element(x);
  return sigmoid * (A(1) + x * (A(1) - sigmoid));
}

// The sum of one channel before the activation.
template <class T, class A>
GANTRY_HOST_DEVICE A convolution_sum(const ConvolutionInputs<T, A>& of, std::int64_t sample, std::int64_t token,
                                     std::int64_t channel) {
  A sum = of.bias ? of.bias[channel] : A(0);
  const std::int64_t earlier = of.earlier(sample, token);
  for (std::int64_t back = 0; back <= earlier; ++back)
    sum += of.tap(back)[channel] * static_cast<A>(of.row(sample, token - back)[channel]);
  return sum;
}

}  // namespace gantry::kernels
