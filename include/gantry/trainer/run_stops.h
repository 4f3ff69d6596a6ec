// When a run ends before its last step: by a signal (StopSignals, or another process's by the control plane), or
// because the program says so.
#pragma once

#include <functional>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/config.h"

namespace gantry {

class RunStops {
 public:
  // Signals are obeyed where there is a checkpoint.path: a run that can't be gone on with is ended by them as any
  // program is.
  RunStops(const Config& config, const ProcessGroupMesh& mesh);

  // This rank wants the run to end after this step, as if that were the last.
  void end() { ends_ = true; }

  enum class StopRequest { kNone, kEnd, kStop };
  // The strongest wish of any rank. Collective over the world.
  StopRequest agreed() const;
  // Whether any rank was asked to stop by a signal. Collective over the world.
  bool asked_to_stop() const;
  // As asked_to_stop(), of this rank's tp group alone. Collective over tp.
  bool stage_asked_to_stop() const;
  // For ExecuteOptions::stops: does this rank want to stop? Empty where signals are not obeyed, and where the others
  // could not hear of it within a step: a job of several processes without signs of life (comm.heartbeat_seconds 0).
  std::function<bool()> within_step() const;

 private:
  bool wants_stop() const;

  const ProcessGroupMesh& mesh_;
  bool obeys_signals_;
  bool all_hear_;  // of a signal, within a step
  bool ends_ = false;
};

}  // namespace gantry
