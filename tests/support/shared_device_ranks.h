// Ranks as processes of an MPI job that have one pretended device in common.
#pragma once

#include "gantry/comm/world.h"
#include "pretend_device.h"
#include "pretend_sharing.h"
#include "ranks.h"

namespace gantry::testing {

// What launch() does under mpirun with comm.backend ipc: runs `body` on every rank, and gives the exit code. `uuid`:
// what this rank takes its device to be.
int launch_on_shared_device(const Config& config, const std::function<void(World&)>& body,
                            const std::string& uuid = "GPU-pretended");

}  // namespace gantry::testing
