// Ranks as processes over Open MPI. Free of mpi.h, so that nothing else needs it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gantry/comm/world.h"

namespace gantry {

// MPI_Init_thread, once for the process; finalised at its end.
void mpi_initialise();
int mpi_world_rank();
int mpi_world_size();
int mpi_ranks_on_host();
[[noreturn]] void mpi_abort(int exit_code);  // flushes, then MPI_Abort

std::unique_ptr<Backend> make_mpi_backend(double timeout_seconds, std::function<std::string(int)> describe_rank);

}  // namespace gantry
