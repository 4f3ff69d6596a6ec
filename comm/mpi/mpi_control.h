// The control plane of an MPI job.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gantry/comm/control/control_plane.h"
#include "gantry/comm/mpi/mpi_backend.h"
#include "gantry/core/config.h"

namespace gantry {

// Signs of life between the job's processes while this lives, and word of failures between it and the backend, both
// ways. MPI carries the meeting place and the token to the ranks.
class MpiControl {
 public:
  // Collective over the job. ConfigError or ResourceError for an interface that can't be had. `backend` outlives it.
  MpiControl(const CommConfig& config, MpiBackend& backend, const std::function<std::string(int)>& describe_rank);
  ~MpiControl();

  // Collective over the job: until all ranks are connected. PeerError if some don't come.
  void rendezvous() { plane_->rendezvous(); }
  // Collective over the job: this rank's work is done. PeerError if a rank is lost or fails meanwhile.
  void leave() { plane_->leave(); }

 private:
  std::unique_ptr<ControlPlane> plane_;
};

// Null where no signs of life are wanted (comm.heartbeat_seconds 0) or there is one rank.
std::unique_ptr<MpiControl> start_mpi_control(const CommConfig& config, MpiBackend& backend,
                                              const std::function<std::string(int)>& describe_rank);

}  // namespace gantry
