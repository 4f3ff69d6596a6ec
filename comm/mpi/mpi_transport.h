// The messages of an MPI job's processes: a communicator for each channel, nonblocking calls only. Free of mpi.h, so
// that nothing else needs it.
#pragma once

#include <memory>

#include "gantry/comm/processes/transport.h"

namespace gantry {

// Initialises MPI unless the program has. The job ends if ranks don't come within `timeout_seconds`.
std::unique_ptr<Transport> make_mpi_transport(double timeout_seconds);

// MPI_Init_thread(MULTIPLE), once; MPI_Finalize then runs at the process's normal exit. ResourceError without threads.
void mpi_initialise();
int mpi_world_size();
int mpi_world_rank();
// Waits for all ranks; nothing if MPI is not running. Never after a failure.
void mpi_finalize();
void set_mpi_finalize_deadline(double seconds);  // for the other ranks to end too; exit code 7 after it

}  // namespace gantry
