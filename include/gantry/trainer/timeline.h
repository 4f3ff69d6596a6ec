// When a step's actions really ran: how much of the pipeline's time was idle, and the picture of the last step beside
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

// In milliseconds.
struct StepPictures {
  schedule::Simulation measured, simulated;
  LayerWork layers;  // of a microbatch's forward and backward; none where a device computed them
};

// Draws both in `output`: timeline.svg and trace.json.
void write_pictures(const StepPictures& pictures, const std::string& output);

class StepTimeline {
 public:
  // Watches the plugin's actions from now on. Neither is owned; the plugin lets go of the timeline with its observer.
  explicit StepTimeline(Plugin& plugin);

  // Around each step, of so many samples per replica; what runs outside is not looked at. A step that was given up
  // leaves no trace: the one before stays the last one.
  void begin();
  void end(std::int64_t replica_samples);
  void give_up();

  // Seconds of this rank's compute actions in the step that ran.
  double busy() const;
  // Of the step that ran: 1 - (mean computing time of the pipeline ranks) / (longest time from a rank's first action to
  // its last one), as the simulator counts it. 0 without a pipeline. Collective over pp.
  double bubble() const;
  // The same from the simulator with equal stages.
  double predicted_bubble();

  // The last step measured and, with its times, simulated; nothing before the first step. Collective over pp.
  // `ranges`: the layers of each stage.
  std::optional<StepPictures> pictures(const std::vector<LayerRange>& ranges) const;

  // Also hands each action of the steps that are watched, messages too, to `listener`.
  void set_listener(Plugin::ActionObserver listener) { listener_ = std::move(listener); }

 private:
  // The last step's compute actions of every pipeline rank, in seconds from the first one's start. Collective over pp.
  // Ranks on other hosts have clocks of their own, by which their rows lie.
  schedule::Timeline gather(const schedule::Schedule& made) const;
  // Likewise what all ranks' forwards took. Collective over pp.
  schedule::ForwardTimes gather_forwards(int layers) const;

  Plugin& plugin_;
  std::vector<schedule::TimedAction> seen_, running_;  // of the last step, and of the one under way
  Plugin::ActionObserver listener_;
  std::int64_t samples_ = 0;                  // of the last step
  std::map<std::int64_t, double> predicted_;  // by samples: making a schedule may take a search
  bool watches_ = false;
};

}  // namespace gantry
