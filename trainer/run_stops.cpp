#include "gantry/trainer/run_stops.h"

#include "gantry/core/host/stop_request.h"
#include "gantry/data/data_loader.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/generation.h"

namespace gantry {

bool handles_stop_signals(const Config& config) { return !config.checkpoint.path.empty() || !config.output.empty(); }

RunStops::RunStops(const Config& config, const ProcessGroupMesh& mesh)
    : mesh_(mesh),
      obeys_signals_(handles_stop_signals(config)),
      all_hear_(config.comm.heartbeat_seconds > 0 || !ranks_are_processes(config.comm)) {}

bool RunStops::wants_stop() const { return obeys_signals_ && stop_requested(); }

RunStops::StopRequest RunStops::agreed() const {
  const Generation* const generation = current_generation();
  const StopRequest mine = wants_stop() || stops_                      ? StopRequest::kStop
                           : ends_                                     ? StopRequest::kEnd
                           : generation && generation->replica_waits() ? StopRequest::kGrow
                                                                       : StopRequest::kNone;
  return static_cast<StopRequest>(all_reduce_number(mesh_.world_group(), static_cast<int>(mine), ReduceOp::kMax));
}

bool RunStops::asked_to_stop() const { return agreed() == StopRequest::kStop; }

bool RunStops::out_of_samples(DataLoader& loader) const {
  if (!loader.reads_streams()) return false;
  return all_reduce_number(mesh_.world_group(), loader.is_at_end() ? 0 : 1, ReduceOp::kMax) == 0;
}

bool RunStops::stage_asked_to_stop() const {
  return all_reduce_number(mesh_[axis::kTensor], wants_stop() ? 1 : 0, ReduceOp::kMax) > 0;
}

std::function<bool()> RunStops::within_step() const {
  if (!obeys_signals_ || !all_hear_) return {};
  return stop_requested;
}

}  // namespace gantry
