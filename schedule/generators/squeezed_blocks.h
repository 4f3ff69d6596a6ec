// V-Min, V-Half and V-1F1B as their paper makes them (Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv
// 2405.15362): a building block, which is one microbatch's four actions on each rank, is repeated every six units, and
// then squeezed: actions move up where the peak of activations allows.
#pragma once

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

// Each fills the rows of a V schedule, with its weight gradients or (V-1F1B) with whole backwards.
Schedule squeezed_v_min(const Schedule& placed);
Schedule squeezed_v_half(const Schedule& placed);
Schedule squeezed_v_one_f_one_b(const Schedule& placed);

}  // namespace gantry::schedule
