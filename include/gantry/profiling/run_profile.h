// `profile:` of a configuration: chosen steps of a run as traces of every rank and of all together, and as a table.
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
  // Watches this rank's thread, as config.profile says: not at all where `active` is 0. `before_print` is called before
  // anything is printed.
  RunProfile(const Config& config, ProcessGroupMesh& mesh, std::function<void()> before_print);

  // The run goes on after others' steps: their traces stay, and cycles are numbered on. Collective over the world.
  void follow_earlier();

  // For each action of a step, messages too, with its times on the steady clock.
  void saw(const schedule::Action& action, double start, double end);

  // Ends a step. At the end of a cycle every rank writes OUTPUT/tensorboard/rank_R/cycle_C.pt.trace.json, and rank 0
  // OUTPUT/profile-C.trace.json with all of them, and prints the table. Collective over the world.
  void step();

  // The run is over: writes a cycle that is under way, and says on stderr (rank 0) if there never was one. Collective
  // over the world.
  void finish();

  // Rank 0's of the last cycle.
  const std::vector<OperatorCost>& operators() const { return operators_; }

 private:
  struct SeenAction {
    schedule::Action action;
    int step;  // of the run
    double start, end;
  };

  void write(const Profile& profile);
  double origin(const Profile& profile) const;
  std::string action_events(double origin) const;
  std::string flow_event(const SeenAction& seen, double origin) const;

  const Config& config_;
  ProcessGroupMesh& mesh_;
  std::function<void()> before_print_;
  std::vector<SeenAction> actions_;  // since the last step that was not watched
  std::vector<OperatorCost> operators_;
  int step_ = 0;
  int first_cycle_ = 0, cycles_ = 0;
  std::unique_ptr<Profiler> profiler_;  // last: it calls write()
};

}  // namespace gantry
