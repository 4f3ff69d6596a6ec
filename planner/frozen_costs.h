// What parts of a model cost where not all of it is trained.
#pragma once

#include "gantry/planner/layout_costs.h"

namespace gantry::planner {

// Takes out of a table of whole training what is frozen, and adds what adapters keep. Frozen weights have no gradients;
// and before the first part that trains, nothing goes back and nothing is kept.
void leave_out_frozen(CostTable& table, const Workload& workload, const Layout& layout);

}  // namespace gantry::planner
