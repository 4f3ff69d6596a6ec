// Profiles selected steps of a run according to the section `profile`: traces of each rank and of all ranks, and a
// table.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/profiling/profiler.h"
#include "gantry/schedule/action.h"

namespace gantry {

class RunProfile {
 public:
  // Profiles this rank's thread according to config.profile; does nothing if `active` is 0. `before_print` is called
  // before anything is printed.
  RunProfile(const Config& config, ProcessGroupMesh& mesh, std::function<void()> before_print);

  // For a run that resumes: keeps the traces of earlier steps, and continues the numbering of cycles. Collective over
  // the world.
  void follow_earlier();

  // Call it for each action of a step, including messages, with its times on the steady clock.
  void saw(const schedule::Action& action, double start, double end);

  // Ends a step. At the end of a cycle, every rank writes OUTPUT/tensorboard/rank_R/cycle_C.pt.trace.json. Rank 0 also
  // writes OUTPUT/profile-C.trace.json with all of them, and prints the table. Collective over the world.
  void step();

  // Ends profiling: writes a cycle in progress. Rank 0 prints a message to stderr if there was no cycle. Collective
  // over the world.
  void finish();

  // The operators of the last cycle on rank 0.
  const std::vector<OperatorCost>& operators() const { return operators_; }

 private:
  struct SeenAction {
    schedule::Action action;
    int step;  // step of the run
    double start, end;
  };

  void write(const Profile& profile);
  double origin(const Profile& profile) const;
  std::string action_events(double origin) const;
  std::string flow_event(const SeenAction& seen, double origin) const;

  const Config& config_;
  ProcessGroupMesh& mesh_;
  std::function<void()> before_print_;
  std::vector<SeenAction> actions_;  // since the last step that was not profiled
  std::vector<OperatorCost> operators_;
  int step_ = 0;
  int first_cycle_ = 0, cycles_ = 0;
  std::unique_ptr<Profiler> profiler_;  // the last member, because it calls write()
};

}  // namespace gantry
