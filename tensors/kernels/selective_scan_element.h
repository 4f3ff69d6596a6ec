// A token's step of a selective scan and its gradients, for one number of a state, for host and device.
#pragma once

#include <cstdint>

#include "gantry/tensors/kernels/exp_element.h"
#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

// Number of tokens after which a forward keeps the states. A backward computes the states between from these again.
inline constexpr int kScanTokens = 32;
// Channels that a kernel of the host and of a device takes together.
inline constexpr int kScanLanes = 64, kScanBlock = 16;

// Contiguous tensors of a scan. A is float or double.
template <class A>
struct ScanInputs {
  std::int64_t samples = 0, tokens = 0, channels = 0, states = 0;
  const A *x = nullptr, *dt = nullptr;  // [samples, tokens, channels]
  const A* a = nullptr;                 // [states, channels]
  const A *b = nullptr, *c = nullptr;   // [samples, tokens, states]
  const A* d = nullptr;                 // [channels]; null: no skip connection
  const bool* starts = nullptr;         // [samples, tokens]: the state before the token is zero; null: none

  GANTRY_HOST_DEVICE std::int64_t pieces() const { return (tokens + kScanTokens - 1) / kScanTokens; }
  GANTRY_HOST_DEVICE bool starts_at(std::int64_t sample, std::int64_t token) const {
    return starts && starts[sample * tokens + token];
  }
};

template <class A>
struct ScanResults {
  A* out = nullptr;      // [samples, tokens, channels]
  A* state = nullptr;    // [samples, states, channels]: the first state, which is replaced by the last one
  A* borders = nullptr;  // [samples, pieces, states, channels]: the state before every kScanTokens tokens
};

// Gradients. Those of b and c are sums over groups of kScanLanes or kScanBlock channels, those of a and d over the
// tokens of a sample.
template <class A>
struct ScanGradients {
  const A *out = nullptr, *borders = nullptr;  // as in ScanResults
  A *x = nullptr, *dt = nullptr;               // [samples, tokens, channels]
  A* a = nullptr;                              // [samples, states, channels]
  A *b = nullptr, *c = nullptr;                // [samples, groups, tokens, states]
  A* d = nullptr;                              // [samples, channels]; null without d
  A* state = nullptr;  // [samples, states, channels]: of the last state, replaced by that of the first
};

// `factor`: e^(dt a); `written`: dt x.
template <class A>
GANTRY_HOST_DEVICE A scan_state(A before, A factor, A written, A b) {
  return factor * before + written * b;
}

// The terms of a number of a state in the gradients of a token.
template <class A>
struct ScanTerms {
  A before, written, exponent, b, c;
};

// `of_after`: the gradient of the state from later tokens; `of_out`: that of the output.
template <class A>
GANTRY_HOST_DEVICE ScanTerms<A> scan_terms(A of_after, A of_out, A before, A factor, A written, A b, A c) {
  const A to_after = of_after + of_out * c, to_before = to_after * factor;
  return {to_before, to_after * b, to_before * before, to_after * written,
          of_out * scan_state(before, factor, written, b)};
}

}  // namespace gantry::kernels
