// The parts of one call of execute_pipeline(), in their order.
#pragma once

#include "gantry/plugins/call_plan.h"
#include "gantry/plugins/model_state.h"
#include "gantry/plugins/step/step_part.h"

namespace gantry {

// Creates the parts that the options of the model and the plan of the call require. Throws ConfigError for
// parts that exclude each other. `core` and everything in the state must outlive them.
StepParts step_parts(ModelState& state, const CallPlan& plan, const ExecuteOptions& options, const Criterion& criterion,
                     StepCore& core);

}  // namespace gantry
