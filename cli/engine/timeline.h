// When a step's actions really ran: how much of the pipeline's time was idle, and the picture of the last step beside
// the simulated one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gantry/plugins/hybrid_parallel_plugin.h"
#include "gantry/schedule/simulate.h"

namespace gantry::cli {

class StepTimeline {
 public:
  // Watches the plugin's actions from now on. Neither is owned; the plugin lets go of the timeline with its observer.
  explicit StepTimeline(HybridParallelPlugin& plugin);

  // Before each step.
  void begin() { seen_.clear(); }
  // Of the step that ran: 1 - (mean computing time of the pipeline ranks) / (longest time from a rank's first action to
  // its last one), as the simulator counts it. 0 without a pipeline. Collective over pp.
  double bubble() const;
  // The same from the simulator with equal stages; of a step of so many samples a replica.
  double predicted_bubble(std::int64_t replica_samples) const;

  // The last step's compute actions of every pipeline rank, in seconds from the first one's start. Collective over pp.
  // Ranks on other hosts have clocks of their own: their rows then start at their own first action.
  std::vector<std::vector<schedule::TimedAction>> gather(std::int64_t replica_samples) const;

 private:
  HybridParallelPlugin& plugin_;
  std::vector<schedule::TimedAction> seen_;
};

}  // namespace gantry::cli
