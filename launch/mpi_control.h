// The control plane of an MPI job.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gantry/comm/control/control_plane.h"
#include "gantry/comm/mpi/mpi_backend.h"
#include "gantry/core/config.h"

namespace gantry {

// The job's processes hear of each other's ends, failures and stops while this lives. MPI carries the meeting place and
// the token from rank 0 to the others: the hub of `gantry launch`, or rank 0's own.
class MpiControl {
 public:
  // Collective over the job. ConfigError or ResourceError for an interface that can't be had.
  MpiControl(const CommConfig& config, const MpiBackend& backend, const std::function<std::string(int)>& describe_rank,
             const ControlEvents& events);
  ~MpiControl();

  // Collective over the job: until all ranks are connected. PeerError if some don't come.
  void rendezvous() { plane_->rendezvous(); }
  // Collective over the job: this rank's work is done. PeerError if a rank is lost or fails meanwhile.
  void leave() { plane_->leave(); }

 private:
  std::unique_ptr<ControlPlane> plane_;
};

// Whose events end the backend's operations, and the job. Null where there is one rank; `backend` outlives it.
std::unique_ptr<MpiControl> start_mpi_control(const CommConfig& config, MpiBackend& backend,
                                              const std::function<std::string(int)>& describe_rank);

}  // namespace gantry
