#include "shared_device_ranks.h"

#include "gantry/comm/shared_device/shared_device_backend.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/process_job.h"
#include "gantry/launch/quiet_launch.h"

namespace gantry::testing {

int launch_on_shared_device(const Config& config, const std::function<void(World&)>& body, const std::string& uuid) {
  const auto sharing = share_pretend_device(0, uuid);
  const Mesh mesh =
      Mesh::hybrid(launched_ranks(), config.parallel.pipeline, config.parallel.data, config.parallel.tensor,
                   config.parallel.order, config.parallel.context, config.parallel.expert);
  return start_mpi_job(config.comm)->run(config, mesh, [&](World& host) {
    run_on_shared_device(host, *sharing, [&](World& world) { run_rank(world, body); });
  });
}

}  // namespace gantry::testing
