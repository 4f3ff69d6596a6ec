#include "device_ranks.h"

#include <c10/core/DeviceGuard.h>

#include "gantry/comm/backends.h"
#include "gantry/comm/nccl/nccl_backend.h"
#include "gantry/comm/recorder/flight_recorder.h"
#include "gantry/diagnosis/diagnosis.h"
#include "gantry/launch/quiet_launch.h"

namespace gantry::testing {

int launch_on_devices(const Config& config, const std::function<void(World&)>& body, const OnDevices& on) {
  const int ranks = config.ranks();
  const Mesh mesh = Mesh::hybrid(ranks, config.parallel.pipeline, config.parallel.data, config.parallel.tensor,
                                 config.parallel.order);
  const recorder::RecordedJob recorded({.folder = config.output + "/recorder",
                                        .ranks = ranks,
                                        .entries = config.comm.recorder,
                                        .sentence_of = recorder::sentence_of});
  return launch_local(config, mesh, [&](World& host) {
    NcclOptions options;
    options.device = pretend_device(host.rank());
    options.waits = {config.comm.timeout_seconds, config.comm.lost_after_seconds};
    options.describe_rank = [&host](int rank) { return host.mesh().describe_rank(rank); };
    options.carries_messages = on.carries_messages;
    const c10::DeviceGuard on_device(options.device);
    NcclBackend backend(host.backend(), options);
    World world(backend, host.config(), host.mesh());
    run_rank(world, body);
  });
}

}  // namespace gantry::testing
