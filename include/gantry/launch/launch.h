// Starts the ranks of a job and runs the training program on each.
#pragma once

#include <functional>

#include "gantry/comm/world.h"

namespace gantry {

// Under mpirun, srun or another PMI launcher, runs the body once in this process, with Open MPI; where `gantry launch
// --backend tcp`, or torchrun over several hosts, started this process, the same with sockets. Otherwise runs it on
// each of config.ranks() threads of this process. In a build with NCCL on a host with CUDA devices, both use NCCL, and
// each rank has a device (World::device). comm.backend overrides this choice. If torchrun has started several copies on
// one host, the first copy runs all ranks, and launch() returns its exit code in all copies (torchrun.h).
// Throws UsageError if another launcher has started several copies without MPI (foreign_launcher.h), or if it is called
// within a rank.
//
// Returns the exit code: 0, or that of the first failure (core/error.h; 9 for other exceptions), which is printed once
// to stderr as "error: <rank>: <line>". If the body throws on one rank, pending and later operations of the other ranks
// throw PeerError that names it. All ranks must end together: the job fails if a rank is still in its body
// comm.timeout_seconds after the first one has ended. A rank that is still in user code after a grace period is not
// waited for: the process ends with the same exit code. With MPI, a failure flushes the output and calls
// MPI_Abort(code).
int launch(const Config& config, const std::function<void(World&)>& body);

// Returns the world of the rank whose body runs on this thread; null outside of a launch.
World* current_world();

}  // namespace gantry
