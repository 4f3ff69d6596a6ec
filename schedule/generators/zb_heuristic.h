// The zero-bubble heuristic as the authors of its paper run it (Qi et al., arXiv 2401.10241): all ranks process the
// microbatches together, one forward and one backward each, and weight gradients fill idle time.
#pragma once

#include <optional>

#include "gantry/schedule/generators/order_options.h"

namespace gantry::schedule {

// Fills the rows of a schedule with one stage on each rank: the best of eight rules by the longest rank. Returns
// nothing if no rule keeps options.limit.
std::optional<Schedule> zb_heuristic(const Schedule& placed, const OrderOptions& options);

}  // namespace gantry::schedule
