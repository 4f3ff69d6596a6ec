#include "gantry/planner/layout.h"
#include "gantry/planner/operations.h"

namespace gantry::planner {

// Masters stand beside values of 16 bits; AdamW keeps two means, the others one (docs/layouts.md).
Program gantry_program(const std::string& precision, const std::string& optimizer) {
  const double value = value_bytes(precision), wide = value == 8 ? 8 : 4;
  const double means = optimizer == "adamw" ? 2 : 1;
  return {.mask_bytes = value, .gradient_bytes = wide, .optimizer_bytes = wide * means + (value == 2 ? wide : 0)};
}

int Layout::microbatches_of(std::int64_t batch) const {
  if (microbatches > 0) return microbatches;
  const std::int64_t samples = (batch + data - 1) / data;
  return static_cast<int>((samples + microbatch - 1) / microbatch);
}

}  // namespace gantry::planner
