// Orders of F and I (or F and B) for V schedules (Qi et al., arXiv 2405.15362).
#pragma once

#include <functional>
#include <vector>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

// Building blocks: the forwards and backwards of one microbatch at fixed distances, repeated every period without
// conflicts on a rank. Short distances hold few activations. Blocks that keep the memory limit when they are repeated
// forever come first, and of these the shortest. Without split_backward, backwards are not split and take twice the
// time. Orders are generated on demand. `placed` must outlive them.
std::vector<std::function<Schedule()>> v_pattern_orders(const Schedule& placed, int limit, bool split_backward);

}  // namespace gantry::schedule
