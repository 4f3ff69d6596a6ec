// Measures when the actions of a step ran: the bubble of the pipeline, and the timeline of the last step together with
// the simulated one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gantry/plugins/plugin.h"
#include "gantry/schedule/measured.h"

namespace gantry {

// All times are in milliseconds.
struct StepPictures {
  schedule::Simulation measured, simulated;
  LayerWork layers;  // times of a microbatch's forward and backward; empty on GPUs
};

// Writes timeline.svg and trace.json to the directory `output`, each with both timelines.
void write_pictures(const StepPictures& pictures, const std::string& output);

// Records the actions of steps on one rank.
class StepTimeline {
 public:
  // Sets the plugin's observer, which refers to this object: keep it until the plugin runs no more steps, or until
  // another observer is set. The plugin is not owned.
  explicit StepTimeline(Plugin& plugin);

  // Call begin() before each step of a model, and end() or give_up() after it; actions outside are ignored. give_up()
  // is for aborted steps, which are not recorded: the previous step remains the last one.
  void begin(const Boosted& boosted);
  void end(std::int64_t replica_samples);
  void give_up();

  // Seconds of this rank's compute actions in the last step.
  double busy() const;
  // The bubble of the last step, as defined by the simulator: 1 - (mean computing time of the pipeline ranks) /
  // (longest time from the first to the last action of a rank). 0 without a pipeline. Collective over pp.
  double bubble() const;
  // The same from a simulation with equal stages.
  double predicted_bubble();

  // Returns the timeline of the last step, and one simulated with its times; empty before the first step. `ranges`: the
  // layers of each stage. Collective over pp.
  std::optional<StepPictures> pictures(const std::vector<LayerRange>& ranges) const;

  // Sets a function that also receives each action of the observed steps, including messages.
  void set_listener(Plugin::ActionObserver listener) { listener_ = std::move(listener); }

 private:
  // Gathers the compute actions of all pipeline ranks in the last step, in seconds from the start of the first one.
  // Ranks on other hosts are placed by their own clocks. Collective over pp.
  schedule::Timeline gather(const schedule::Schedule& made) const;
  // Gathers the forward times of all ranks. Collective over pp.
  schedule::ForwardTimes gather_forwards(int layers) const;

  Plugin& plugin_;
  Boosted boosted_;                                    // only the model of the last step
  std::vector<schedule::TimedAction> seen_, running_;  // actions of the last step, and of the running one
  Plugin::ActionObserver listener_;
  std::int64_t samples_ = 0;                  // samples per replica of the last step
  std::map<std::int64_t, double> predicted_;  // by samples; cached, because creating a schedule may need a search
  bool watches_ = false;
};

}  // namespace gantry
