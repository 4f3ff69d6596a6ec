// The activations of gates and their derivatives, for host and device.
#pragma once

#include <cmath>

#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

enum class GateFunction : int { kSilu, kGelu, kTanhGelu };

// An activation and its derivative at one number.
template <class A>
struct GateNumbers {
  A value, slope;
};

template <class A>
GANTRY_HOST_DEVICE GateNumbers<A> silu_at(A x) {
  const A sigmoid = A(1) / (A(1) + std::exp(-x));
  return {x * sigmoid, sigmoid * (A(1) + x * (A(1) - sigmoid))};
}

template <class A>
GANTRY_HOST_DEVICE GateNumbers<A> gelu_at(A x) {
  constexpr A kRootHalf = A(0.70710678118654752440), kDensityAtZero = A(0.39894228040143267794);
  const A below = A(0.5) * (A(1) + std::erf(x * kRootHalf));
  return {x * below, below + x * kDensityAtZero * std::exp(A(-0.5) * x * x)};
}

template <class A>
GANTRY_HOST_DEVICE GateNumbers<A> tanh_gelu_at(A x) {
  constexpr A kScale = A(0.79788456080286535588), kCubic = A(0.044715);
  const A tangent = std::tanh(kScale * (x + kCubic * x * x * x));
  const A inner_slope = kScale * (A(1) + A(3) * kCubic * x * x);
  return {A(0.5) * x * (A(1) + tangent),
          A(0.5) * (A(1) + tangent) + A(0.5) * x * (A(1) - tangent * tangent) * inner_slope};
}

template <GateFunction kFunction, class A>
GANTRY_HOST_DEVICE GateNumbers<A> gate_at(A x) {
  if constexpr (kFunction == GateFunction::kSilu) return silu_at(x);
  if constexpr (kFunction == GateFunction::kGelu) return gelu_at(x);
  return tanh_gelu_at(x);
}

}  // namespace gantry::kernels
