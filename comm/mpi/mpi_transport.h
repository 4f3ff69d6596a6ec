// The messages of an MPI job's processes: one communicator per channel, and only nonblocking calls. Does not
// include mpi.h, so that its users do not need it.
#pragma once

#include <memory>

#include "gantry/comm/processes/transport.h"

namespace gantry {

// Initialises MPI unless the program has done so. Ends the job if ranks do not arrive within
// `timeout_seconds`.
std::unique_ptr<Transport> make_mpi_transport(double timeout_seconds);

// Calls MPI_Init_thread(MULTIPLE), once; MPI_Finalize then runs at the normal exit of the process. Throws
// ResourceError if MPI does not support threads.
void mpi_initialise();
int mpi_world_size();
int mpi_world_rank();
// Waits for all ranks; has no effect if MPI is not running. Must not be called after a failure.
void mpi_finalize();
void set_mpi_finalize_deadline(double seconds);  // for the other ranks to end; then exit code 7

}  // namespace gantry
