// Parameters that are cut over replicas (ZeRO 3) under any schedule: when a stage's are gathered (UNSHARD) and released
// (RESHARD), and when its gradients are summed (REDUCE_GRAD). A forward and an input gradient need the parameters, a
// weight gradient is a product of activations and gradients alone. UNSHARD and REDUCE_GRAD are collective over the
// replicas of the rank.
#pragma once

#include <string>
#include <vector>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

enum class Gather {
  kStep,        // a stage is gathered before its first use, and released after its last one
  kWindow,      // the stage in use and the next one are whole: gathers run ahead of their use
  kMicrobatch,  // gathered for each computation and released after it
  kAround,      // all stages before the first action and until after the last, in one order whatever lies between: for
                // replicas whose rows differ, since those have unequal numbers of microbatches
};
// step | window | microbatch; auto is microbatch without a pipeline, and else window, which is step where a rank has
// two stages or fewer.
Gather gather_of(const std::string& name, int pipeline);

bool needs_parameters(ActionKind kind);

// What a replica without any microbatch does of kAround, with these stages.
std::vector<Action> actions_around(std::vector<int> stages, bool trains);

// The schedule with these actions placed, in place of any that it has. Its computations keep their order; it must not
// have messages (lower() places them afterwards). With a backward every stage's gradients are summed once, after its
// last weight gradient.
Schedule with_parameter_actions(const Schedule& schedule, Gather gather);

// A stage is computed only while whole; what is released was whole, and nothing stays whole at the row's end; a stage's
// gradients are summed once, after the last of them. ConfigError as of validate().
void prove_parameter_actions(const Schedule& schedule);

// That replicas of one pipeline, each with its own valid schedule, finish together: their collective actions meet in
// one order on each rank, and no circle of these and of messages can hold them up. ConfigError that names the rank, the
// replicas and the actions.
void validate_replicas(const std::vector<Schedule>& replicas);

}  // namespace gantry::schedule
