// What recomputation keeps of a part of the model, and makes again: of PartOperations and PartCosts alike.
#pragma once

#include <algorithm>

#include "gantry/planner/layout.h"

namespace gantry::planner {

// Bytes from forward to backward.
template <class Part>
double kept_with(const Part& part, Recompute how) {
  switch (how) {
    case Recompute::kSelective:
      return part.kept - part.kept_core;
    case Recompute::kParts:
      return part.kept_inputs;
    case Recompute::kFull:
      return part.kept_whole;
    default:
      return part.kept;
  }
}

// Bytes that are there once more while it is computed again; but for the core, the gradient of its output waits
// meanwhile.
template <class Part>
double made_again(const Part& part, Recompute how) {
  switch (how) {
    case Recompute::kSelective:
      return part.kept_core;
    case Recompute::kParts:  // attention and MLP one by one; each begins with an input that was kept
      return std::max(part.kept_attention, part.kept - part.kept_attention) - part.kept_inputs / 2 + part.kept_whole;
    case Recompute::kFull:
      return part.kept;
    default:
      return 0;
  }
}

// What of the forward is computed again; null for nothing.
template <class Part>
auto computed_again(const Part& part, Recompute how) -> decltype(&part.forward) {
  if (how == Recompute::kNone) return nullptr;
  return how == Recompute::kSelective ? &part.core : &part.forward;
}

}  // namespace gantry::planner
