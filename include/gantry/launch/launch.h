// Starts the ranks of a job and runs the training program on each.
#pragma once

#include <functional>

#include "gantry/comm/world.h"

namespace gantry {

// Under mpirun, srun or another PMI launcher the body runs once, in this process, over Open MPI; otherwise once on each
// of config.ranks() threads of this process. In a build with NCCL and where CUDA devices are, tensors travel by NCCL in
// both cases, and each rank has a device (World::device). comm.backend overrides. Of copies that
// torchrun has started on one host the first has all ranks, and launch returns its exit code in each (torchrun.h).
// UsageError where another launcher has started this program several times without MPI (foreign_launcher.h).
//
// Returns the exit code: 0, or that of the first failure (core/error.h; 9 for any other exception), which is printed
// once to stderr as "error: <rank>: <line>". When the body throws on one rank, the others' pending and later operations
// throw PeerError naming it. Ranks end together: one that is still in its body comm.timeout_seconds after the first has
// ended fails the job. A rank that is still in user code after a grace time is not waited for: the process then
// ends with the right code. Under MPI a failure flushes, then MPI_Abort(code). A launch within a rank of a launch is a
// UsageError.
int launch(const Config& config, const std::function<void(World&)>& body);

// The world of the rank whose body runs on this thread; null outside a launch.
World* current_world();

}  // namespace gantry
