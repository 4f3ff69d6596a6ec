// Parameters that are sharded over replicas (ZeRO 3) in any schedule: when the parameters of a stage are gathered
// (UNSHARD) and released (RESHARD), and when its gradients are reduced (REDUCE_GRAD). A forward and an input gradient
// need the parameters; a weight gradient needs only activations and gradients. UNSHARD and REDUCE_GRAD are collective
// over the replicas of the rank.
#pragma once

#include <string>
#include <vector>

#include "gantry/schedule/gather.h"
#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

// Parses step | window | microbatch | auto; see auto_gather().
Gather gather_of(const std::string& name, int pipeline);
// kMicrobatch without a pipeline, and else kWindow, which equals kStep if a rank has at most two stages.
Gather auto_gather(int pipeline);

bool needs_parameters(ActionKind kind);

// The actions of a replica without microbatches under kAround, with these stages.
std::vector<Action> actions_around(std::vector<int> stages, bool trains);

// Places these actions in the schedule and replaces any that it has. The computations keep their order. The schedule
// must not have messages (lower() adds them afterwards). With a backward, the gradients of every stage are reduced
// once, after its last weight gradient.
Schedule with_parameter_actions(const Schedule& schedule, Gather gather);

// Checks that a stage is gathered whenever it is used, that only gathered stages are released, and that none is
// gathered at the end of the row. Gradients must be reduced once, after the last ones. Throws ConfigError like
// validate().
void prove_parameter_actions(const Schedule& schedule);

// Checks that replicas of one pipeline, each with its own valid schedule, finish together: on each rank their
// collective actions have the same order, and no cycle of collectives and messages blocks them. Throws ConfigError with
// the rank, the replicas and the actions.
void validate_replicas(const std::vector<Schedule>& replicas);

}  // namespace gantry::schedule
