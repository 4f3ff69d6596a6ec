// The rotation of pairs of features, for host and device.
#pragma once

#include <cstdint>

#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

// Where the heads of a rotation are in memory. Strides are in elements; the features of a head are adjacent.
struct RotatedHeads {
  std::int64_t samples = 0, heads = 0, tokens = 0;
  std::int64_t pairs = 0, rest = 0;  // rotated pairs of a head, and the features behind them, which are copied
  struct Strides {
    std::int64_t sample = 0, head = 0, token = 0;
  } input, output;
  std::int64_t angle_sample = 0, angle_token = 0;  // strides of the cosines and sines
  bool adjacent = false;  // a pair is features 2 i and 2 i + 1; otherwise features i and i + pairs
  bool back = false;      // by the negative angles
};

// A is the type of the arithmetic: float for half precisions.
template <class A>
struct FeaturePair {
  A first, second;
};

template <class A>
GANTRY_HOST_DEVICE FeaturePair<A> rotated(const FeaturePair<A>& pair, A cosine, A sine) {
  return {pair.first * cosine - pair.second * sine, pair.second * cosine + pair.first * sine};
}

}  // namespace gantry::kernels
