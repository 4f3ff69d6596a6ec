// ZB-V as its authors' heuristic makes it (Qi et al., arXiv 2405.15362): all ranks go through the backwards together,
// each followed by the forward that can run, and weight gradients fill what would be idle.
#pragma once

#include "gantry/schedule/generators/order_options.h"

namespace gantry::schedule {

// Fills the rows of a V schedule for options.limit chunk activations, at least 2 per rank: the one of four rules, each
// tried twice, whose ranks are idle the least.
Schedule zb_v_heuristic(const Schedule& placed, const OrderOptions& options);

}  // namespace gantry::schedule
