#include "gantry/nn/forward.h"

#include <utility>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

thread_local const Forward* innermost = nullptr;
// Number of draws outside of any forward. A custom training loop has no object that could hold it.
thread_local std::uint64_t draws_outside = 0;

}  // namespace

ForwardScope::ForwardScope(Forward forward) : former_(innermost), forward_(std::move(forward)) {
  innermost = &forward_;
}
ForwardScope::~ForwardScope() { innermost = former_; }

const Forward& forward_now() {
  static const Forward kNothing;
  return innermost ? *innermost : kNothing;
}

RandomContext random_context() {
  if (const auto& known = forward_now().random) return *known;
  return {.step = draws_outside++};
}

std::int64_t sequence_length() {
  const auto& known = forward_now().random;
  return known ? known->sequence_length : 0;
}

}  // namespace gantry
