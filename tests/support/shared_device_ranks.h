// Ranks as processes of an MPI job that share one pretended device.
#pragma once

#include "gantry/comm/world.h"
#include "pretend_device.h"
#include "pretend_sharing.h"
#include "ranks.h"

namespace gantry::testing {

// Works like launch() under mpirun with comm.backend ipc: runs `body` on every rank and returns the exit
// code. `uuid`: the device's UUID that this rank reports.
int launch_on_shared_device(const Config& config, const std::function<void(World&)>& body,
                            const std::string& uuid = "GPU-pretended");

}  // namespace gantry::testing
