#include <cstdio>

#include "gantry/comm/backends.h"
#include "gantry/comm/mpi/mpi_backend.h"
#include "gantry/comm/mpi/mpi_control.h"
#include "gantry/core/error.h"

namespace gantry {

int launch_mpi(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) {
  mpi_initialise();
  if (mesh.size() != mpi_world_size())
    throw UsageError(
        {"launch",
         "a mesh of " + std::to_string(mesh.size()) + " ranks in an MPI job of " + std::to_string(mpi_world_size()),
         "as many", "start the program by this MPI's own mpirun"});
  const auto describe_rank = [mesh](int rank) { return mesh.describe_rank(rank); };
  std::unique_ptr<MpiBackend> backend;
  std::unique_ptr<MpiControl> control;  // stays while the job is ended
  std::exception_ptr failure;
  try {
    set_mpi_finalize_deadline(config.comm.timeout_seconds);
    set_rank_threads(config.comm, static_cast<int>(mpi_cores_of_rank() + 1e-6));
    backend = make_mpi_backend({config.comm.timeout_seconds, config.comm.lost_after_seconds}, describe_rank);
    control = start_mpi_control(config.comm, *backend, describe_rank);
    if (control) control->rendezvous();
    World world(*backend, config, mesh);
    body(world);
    backend->close();
    if (control) control->leave();
  } catch (...) {
    failure = std::current_exception();
  }
  if (!failure) return 0;
  const Failure what = describe_exception(failure);
  if (backend) backend->end_job(what.exit_code, what.line);
  // Nothing tells the other ranks yet but the end of this one.
  std::fprintf(stderr, "error: %s: %s\n", mesh.describe_rank(mpi_world_rank()).c_str(), what.line.c_str());
  mpi_abort(what.exit_code);
}

}  // namespace gantry
