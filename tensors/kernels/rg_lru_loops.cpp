#include "gantry/tensors/kernels/rg_lru_loops.h"

#include <algorithm>

#include "gantry/tensors/kernels/host_loops.h"

namespace gantry::kernels {
namespace {

template <class T, class A>
GANTRY_IN_LOOPS void lru_tokens(const LruInputs<T, A>& of, A* states, std::int64_t sample, LruChannels channels) {
  const auto [first, count] = channels;
  const A* const scale = of.scale + first;
  A state[kMostLruChannels];
  std::copy(of.initial + sample * of.channels + first, of.initial + sample * of.channels + first + count, state);
  for (std::int64_t token = 0; token < of.tokens; ++token) {
    const std::int64_t row = of.row(sample, token) + first;
    const T *const x = of.x + row, *const input = of.input_gate + row, *const recurrent = of.recurrent_gate + row;
    const A keeps = of.starts_at(sample, token) ? A(0) : A(1);
    A* const out = states + row;
#pragma GCC ivdep  // the states are none of the inputs
    for (std::int64_t i = 0; i < count; ++i) {
      const LruToken<A> made = lru_token(static_cast<A>(input[i]), static_cast<A>(recurrent[i]), scale[i]);
      state[i] = lru_state(made, state[i], static_cast<A>(x[i]), keeps);
      out[i] = state[i];
    }
  }
}

template <class T, class A>
GANTRY_IN_LOOPS void lru_tokens_backward(const LruInputs<T, A>& of, const LruGradients<A>& to, std::int64_t sample,
                                         LruChannels channels) {
  const auto [first, count] = channels;
  const A* const scale = of.scale + first;
  A of_state[kMostLruChannels], of_scale[kMostLruChannels];
  std::fill(of_state, of_state + count, A(0));
  std::fill(of_scale, of_scale + count, A(0));
  for (std::int64_t token = of.tokens - 1; token >= 0; --token) {
    const std::int64_t row = of.row(sample, token) + first;
    const T *const x = of.x + row, *const input = of.input_gate + row, *const recurrent = of.recurrent_gate + row;
    const A* const before = token > 0 ? to.states + row - of.channels : of.initial + sample * of.channels + first;
    const A keeps = of.starts_at(sample, token) ? A(0) : A(1), *const of_out = to.out + row;
    A *const to_x = to.x + row, *const to_input = to.input_gate + row, *const to_recurrent = to.recurrent_gate + row;
#pragma GCC ivdep  // the gradients are none of the inputs
    for (std::int64_t i = 0; i < count; ++i) {
      const LruToken<A> made = lru_token(static_cast<A>(input[i]), static_cast<A>(recurrent[i]), scale[i]);
      const LruTerms<A> terms =
          lru_terms(made, of_state[i] + of_out[i], before[i], static_cast<A>(x[i]), scale[i], keeps);
      of_state[i] = terms.before;
      of_scale[i] += terms.scale;
      to_x[i] = terms.x;
      to_input[i] = terms.input_gate;
      to_recurrent[i] = terms.recurrent_gate;
    }
  }
  std::copy(of_scale, of_scale + count, to.scale + sample * of.channels + first);
  std::copy(of_state, of_state + count, to.initial + sample * of.channels + first);
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types
#define GANTRY_LRU(T, A)                                                                             \
  GANTRY_HOST_LOOPS void lru_channels(const LruInputs<T, A>& of, A* states, std::int64_t sample,     \
                                      LruChannels channels) {                                        \
    lru_tokens(of, states, sample, channels);                                                        \
  }                                                                                                  \
  GANTRY_HOST_LOOPS void lru_channels_backward(const LruInputs<T, A>& of, const LruGradients<A>& to, \
                                               std::int64_t sample, LruChannels channels) {          \
    lru_tokens_backward(of, to, sample, channels);                                                   \
  }
// NOLINTEND(bugprone-macro-parentheses)

GANTRY_LRU(float, float)
GANTRY_LRU(double, double)
GANTRY_LRU(c10::BFloat16, float)
GANTRY_LRU(c10::Half, float)

#undef GANTRY_LRU

}  // namespace gantry::kernels
