#include "device_ranks.h"

#include "gantry/comm/nccl/nccl_backend.h"
#include "gantry/diagnosis/diagnosis.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/quiet_launch.h"

namespace gantry::testing {

int launch_on_devices(const Config& config, const std::function<void(World&)>& body, const OnDevices& on) {
  const int ranks = config.ranks();
  const Mesh mesh = Mesh::hybrid(ranks, config.parallel.pipeline, config.parallel.data, config.parallel.tensor,
                                 config.parallel.order, config.parallel.context, config.parallel.expert);
  const recorder::RecordedJob recorded({.folder = config.output + "/recorder",
                                        .ranks = ranks,
                                        .entries = config.comm.recorder,
                                        .sentence_of = recorder::sentence_of});
  return launch_local(config, mesh, [&](World& host) {
    NcclOptions options = nccl_options(host, pretend_device(host.rank()));
    if (on.carries_messages) options.carries_messages = on.carries_messages;
    run_on_device(std::move(options), host, [&](World& world) { run_rank(world, body); });
  });
}

}  // namespace gantry::testing
