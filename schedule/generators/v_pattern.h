// Orders of F and I (or F and B) for V schedules (Qi et al., arXiv 2405.15362).
#pragma once

#include <functional>
#include <vector>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

// Building blocks: one microbatch's forwards and backwards at fixed distances, repeated every period without two
// actions of a rank at one time. Short distances hold few activations. Those that keep the limit when they are repeated
// for ever come first, and among them the shortest; without split_backward the backwards are whole and take twice the
// time. Each order is made when it is asked for. `placed` must outlive them.
std::vector<std::function<Schedule()>> v_pattern_orders(const Schedule& placed, int limit, bool split_backward);

}  // namespace gantry::schedule
