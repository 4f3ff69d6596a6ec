// The zero-bubble heuristic as its paper's authors run it (Qi et al., arXiv 2401.10241): all ranks go through the
// microbatches together, one forward and one backward each, and weight gradients fill what would be idle.
#pragma once

#include <optional>

#include "gantry/schedule/generators/order_options.h"

namespace gantry::schedule {

// Fills the rows of a schedule with one stage on each rank: the best of eight rules by the longest rank. Nothing where
// none of them finds room within options.limit.
std::optional<Schedule> zb_heuristic(const Schedule& placed, const OrderOptions& options);

}  // namespace gantry::schedule
