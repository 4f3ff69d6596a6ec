// Converts the measured timeline of a run to a Simulation, so that it can be drawn in the same way, and to costs.
#pragma once

#include <string>
#include <vector>

#include "gantry/schedule/layer_work.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/schedule/simulate.h"

namespace gantry::schedule {

using Timeline = std::vector<std::vector<TimedAction>>;  // compute actions by rank, in the order in which they ran

// Returns the figures for a timeline of `schedule` (compute-only form). Makespans and bubble follow from its times; the
// work of a rank is its computing time. Peaks are simulated.
Simulation figures_of(const Timeline& timeline, const Schedule& schedule);

// Returns the mean times of each stage. If the backwards of a stage are never split, their time counts as input
// gradient. Stages without actions and messages cost nothing: the time of messages is not in the actions.
Costs costs_of(const Timeline& timeline, int num_stages);

// Seconds of the forwards of all microbatches of a step, as measured on the host: per layer, before the first layer of
// the first stage, and after the last layer of the last stage.
struct ForwardTimes {
  std::vector<double> layers;  // zero for layers of other ranks
  double before = 0, after = 0;
};

// Returns the time per microbatch (forward and backward) of each layer, the embedding and the head, in the unit of
// `costs`. The time of a stage is distributed in proportion to the forward times. `ranges`: the layers of each stage.
LayerWork work_of(const Costs& costs, const std::vector<LayerRange>& ranges, const ForwardTimes& forwards);

// Draw both with the same time scale, the measured one first: as one SVG file, or as a Chrome trace with one process
// each.
std::string draw_svg_comparison(const Simulation& measured, const Simulation& simulated, const std::string& title);
std::string draw_chrome_trace_comparison(const Simulation& measured, const Simulation& simulated);

}  // namespace gantry::schedule
