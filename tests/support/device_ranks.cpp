#include "device_ranks.h"

#include "gantry/comm/nccl/nccl_backend.h"
#include "gantry/diagnosis/diagnosis.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/job_start.h"
#include "gantry/launch/process_job.h"
#include "gantry/launch/quiet_launch.h"

namespace gantry::testing {

namespace {

// Joins the job of this process, which mpirun or `gantry launch --backend tcp` has started.
std::unique_ptr<StartedJob> join_job(const Config& config) {
  return under_mpirun() ? start_mpi_job(config.comm) : start_tcp_job(find_job_start().value(), config);
}

}  // namespace

int launch_on_devices(const Config& config, const std::function<void(World&)>& body, const OnDevices& on) {
  const int ranks = on.processes ? launched_ranks() : config.ranks();
  const Mesh mesh = Mesh::hybrid(ranks, config.parallel.pipeline, config.parallel.data, config.parallel.tensor,
                                 config.parallel.order, config.parallel.context, config.parallel.expert);
  const recorder::RecordedJob recorded({.folder = config.output + "/recorder",
                                        .ranks = ranks,
                                        .entries = config.comm.recorder,
                                        .several_processes = on.processes,
                                        .sentence_of = recorder::sentence_of});
  const auto run = [&](World& host) {
    NcclOptions options = nccl_options(host, pretend_device(host.rank()));
    if (on.carries_messages) options.carries_messages = on.carries_messages;
    run_on_device(std::move(options), host, [&](World& world) { run_rank(world, body); });
  };
  return on.processes ? join_job(config)->run(config, mesh, run) : launch_local(config, mesh, run);
}

}  // namespace gantry::testing
