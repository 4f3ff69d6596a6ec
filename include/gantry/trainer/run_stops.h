// Decides whether a run ends before its last step: because of a signal (StopSignals, or one in another process, by the
// control plane), or on request of the program.
#pragma once

#include <functional>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/config.h"

namespace gantry {

// True if stop signals end a run in order: if checkpoint.path or output is set, so that there is something to write.
// Otherwise signals keep their default action.
bool handles_stop_signals(const Config& config);

class DataLoader;

// The stop requests of all ranks, as one rank sees them.
class RunStops {
 public:
  // Signals stop the run only if handles_stop_signals().
  RunStops(const Config& config, const ProcessGroupMesh& mesh);

  // Requests from this rank that the run ends after this step, as if it were the last one.
  void end() { ends_ = true; }
  // Requests from this rank that the run stops after this step, as after a signal.
  void stop() { stops_ = true; }

  // kGrow: a replica waits to join an elastic job.
  enum class StopRequest { kNone, kGrow, kEnd, kStop };
  // Returns the strongest request of any rank. Collective over the world.
  StopRequest agreed() const;
  // True if any rank received a stop signal. Collective over the world.
  bool asked_to_stop() const;
  // True if the streams of all replicas have ended, so that no further step has samples. Waits for the next batch.
  // False for a loader of a data set. Collective over the world.
  bool out_of_samples(DataLoader& loader) const;
  // Returns true if any rank of this rank's tp group received a stop signal. Collective over tp.
  bool stage_asked_to_stop() const;
  // Returns a function for ExecuteOptions::stops. Empty if signals do not stop the run, or if other ranks could not be
  // notified within a step: in MPI jobs without heartbeats (comm.heartbeat_seconds 0).
  std::function<bool()> within_step() const;

 private:
  bool wants_stop() const;

  const ProcessGroupMesh& mesh_;
  bool obeys_signals_;
  bool all_hear_;  // all ranks are notified of a signal within a step
  bool ends_ = false, stops_ = false;
};

}  // namespace gantry
