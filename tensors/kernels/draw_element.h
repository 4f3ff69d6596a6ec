// The random number of one element of a tensor, and the position of the element in memory, for host and
// device.
#pragma once

#include <cstdint>

#include "gantry/tensors/kernels/philox_block.h"

namespace gantry::kernels {

enum class Law : int {
  kNormal,     // mean a, deviation b
  kUniform,    // from a to b
  kBernoulli,  // 1 with probability a, else 0
  kMask,       // 0 with probability a (by 32 bits), else b
};

struct Drawn {
  Law law = Law::kNormal;
  double a = 0, b = 0;
  std::uint64_t seed = 0, stream = 0;
};

// The block of four words that contains the word of a mask's element: block element / 4.
GANTRY_HOST_DEVICE PhiloxBlock mask_block(const Drawn& drawn, std::uint64_t element) {
  return philox_block(drawn.seed, drawn.stream, element / 4);
}

GANTRY_HOST_DEVICE double mask_of(const Drawn& drawn, std::uint32_t word) {
  return word >= static_cast<std::uint32_t>(drawn.a * 4294967295.0) ? drawn.b : 0;
}

// A uniform number uses two words, and a normal number a block.
GANTRY_HOST_DEVICE double draw_element(const Drawn& drawn, std::uint64_t element) {
  if (drawn.law == Law::kMask) return mask_of(drawn, mask_block(drawn, element).word[element % 4]);
  if (drawn.law == Law::kNormal)
    return drawn.a + drawn.b * normal_of(philox_block(drawn.seed, drawn.stream, element).word);
  const PhiloxBlock block = philox_block(drawn.seed, drawn.stream, element / 2);
  const double uniform =
      element % 2 == 0 ? unit_of(block.word[0], block.word[1]) : unit_of(block.word[2], block.word[3]);
  if (drawn.law == Law::kBernoulli) return uniform < drawn.a ? 1 : 0;
  return drawn.a + (drawn.b - drawn.a) * uniform;
}

// A part of a larger tensor: its strides in memory and in the full tensor, outermost dim first. Dims that are
// contiguous in both are joined.
struct Box {
  static constexpr int kMaxDims = 6;
  int dims = 0;
  std::int64_t size[kMaxDims] = {}, in_memory[kMaxDims] = {}, in_full[kMaxDims] = {};  // strides, in elements
  std::int64_t first = 0;  // index of the first element in the full tensor
};

struct Place {
  std::int64_t in_memory = 0;
  std::uint64_t in_full = 0;
};

// The place of element i of the box, in row-major order.
GANTRY_HOST_DEVICE Place place_in(const Box& box, std::int64_t i) {
  std::int64_t in_memory = 0, in_full = box.first;
  for (int dim = box.dims - 1; dim > 0; --dim) {
    const std::int64_t at = i % box.size[dim];
    i /= box.size[dim];
    in_memory += at * box.in_memory[dim];
    in_full += at * box.in_full[dim];
  }
  if (box.dims > 0) {
    in_memory += i * box.in_memory[0];
    in_full += i * box.in_full[0];
  }
  return {in_memory, static_cast<std::uint64_t>(in_full)};
}

}  // namespace gantry::kernels
