// A token of a real-gated linear recurrent unit and its gradients, in one channel, for host and device. T is the type
// of the inputs, and A the type of the states.
#pragma once

#include <cmath>
#include <cstdint>

#include "gantry/tensors/kernels/exp_element.h"
#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

// Contiguous tensors.
template <class T, class A>
struct LruInputs {
  std::int64_t samples = 0, tokens = 0, channels = 0;
  const T *x = nullptr, *input_gate = nullptr, *recurrent_gate = nullptr;  // [samples, tokens, channels]
  const A* scale = nullptr;      // [channels]: the logarithm of the smallest decay
  const A* initial = nullptr;    // [samples, channels]: the state before the first token
  const bool* starts = nullptr;  // [samples, tokens]: a text begins; null: none

  GANTRY_HOST_DEVICE std::int64_t row(std::int64_t sample, std::int64_t token) const {
    return (sample * tokens + token) * channels;
  }
  GANTRY_HOST_DEVICE bool starts_at(std::int64_t sample, std::int64_t token) const {
    return starts && starts[sample * tokens + token];
  }
};

// Gradients. That of scale is a sum over the tokens of a sample.
template <class A>
struct LruGradients {
  const A *out = nullptr, *states = nullptr;                         // [samples, tokens, channels]
  A *x = nullptr, *input_gate = nullptr, *recurrent_gate = nullptr;  // [samples, tokens, channels]
  A *scale = nullptr, *initial = nullptr;                            // [samples, channels]
};

// h' = decay h + factor input_gate x. A text that begins has the decay 0 and the factor 1.
template <class A>
struct LruToken {
  A decay, factor, input_gate, recurrent_gate;
  A square;  // 1 - decay^2, the square of the factor
};

template <class A>
GANTRY_HOST_DEVICE LruToken<A> lru_token(A input_gate, A recurrent_gate, A scale) {
  LruToken<A> token;
  token.input_gate = sigmoid_element(input_gate);
  token.recurrent_gate = sigmoid_element(recurrent_gate);
  const A logarithm = scale * token.recurrent_gate;
  token.decay = exp_element(logarithm);
  token.square = -expm1_element(2 * logarithm);
  token.factor = std::sqrt(token.square);
  return token;
}

template <class A>
GANTRY_HOST_DEVICE A lru_state(const LruToken<A>& token, A before, A x, A keeps) {
  const A factor = keeps * token.factor + (A(1) - keeps);
  return keeps * token.decay * before + factor * token.input_gate * x;
}

template <class A>
struct LruTerms {
  A before, x, input_gate, recurrent_gate, scale;
};

// `of_state`: the gradient of the state after the token; `keeps`: 0 for a text that begins, else 1. The slope of the
// square root is at most 1,000.
template <class A>
GANTRY_HOST_DEVICE LruTerms<A> lru_terms(const LruToken<A>& token, A of_state, A before, A x, A scale, A keeps) {
  constexpr A kSmallest = A(1e-6);
  const A factor = keeps * token.factor + (A(1) - keeps), four = 4 * token.square;
  const A slope = A(1) / std::sqrt(four < kSmallest ? kSmallest : four);
  const A of_logarithm = keeps * of_state * token.decay * (before - 2 * token.decay * slope * x * token.input_gate);
  const A input = token.input_gate, recurrent = token.recurrent_gate;
  return {keeps * of_state * token.decay, of_state * input * factor, of_state * x * factor * input * (A(1) - input),
          of_logarithm * scale * recurrent * (A(1) - recurrent), of_logarithm * recurrent};
}

}  // namespace gantry::kernels
