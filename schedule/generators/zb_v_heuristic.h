// ZB-V as in its authors' heuristic (Qi et al., arXiv 2405.15362): all ranks process the backwards together, each
// followed by the forward that can run, and weight gradients fill idle time.
#pragma once

#include "gantry/schedule/generators/order_options.h"

namespace gantry::schedule {

// Fills the rows of a V schedule for options.limit chunk activations, at least 2 per rank: the best of four rules, each
// tried twice, by the idle time of the ranks.
Schedule zb_v_heuristic(const Schedule& placed, const OrderOptions& options);

}  // namespace gantry::schedule
