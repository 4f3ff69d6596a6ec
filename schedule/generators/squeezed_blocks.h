// V-Min, V-Half and V-1F1B as in their paper (Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv
// 2405.15362). A building block consists of the four actions of one microbatch on each rank. It is repeated every six
// units and then squeezed: actions move to earlier slots if the peak of activations allows it.
#pragma once

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

// Each function fills the rows of a V schedule, with separate weight gradients or (V-1F1B) with full backwards.
Schedule squeezed_v_min(const Schedule& placed);
Schedule squeezed_v_half(const Schedule& placed);
Schedule squeezed_v_one_f_one_b(const Schedule& placed);

}  // namespace gantry::schedule
