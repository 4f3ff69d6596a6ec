// A run's real timeline as a simulation, so that it is drawn the same way, and the costs that it shows.
#pragma once

#include <string>
#include <vector>

#include "gantry/core/layer_work.h"
#include "gantry/core/pipeline_stage_manager.h"
#include "gantry/schedule/simulate.h"

namespace gantry::schedule {

using Timeline = std::vector<std::vector<TimedAction>>;  // compute actions by rank, in the order in which they ran

// The figures of a timeline of `schedule` (compute-only form): makespans and bubble from its times, where the work of a
// rank is what it computed; peaks as simulated.
Simulation figures_of(const Timeline& timeline, const Schedule& schedule);

// Each stage's mean times. A stage whose backwards are never split gives all of them to the input gradient. Stages that
// ran nothing cost nothing. Messages cost nothing: their time is not in the actions'.
Costs costs_of(const Timeline& timeline, int num_stages);

// Seconds of a step's forwards, of all microbatches, as the host saw them: of each layer, and of what came before the
// first stage's layers and after the last one's.
struct ForwardTimes {
  std::vector<double> layers;  // zero for those of other ranks
  double before = 0, after = 0;
};

// What each layer, the embedding and the head take of a microbatch's forward and backward, in the unit of `costs`: a
// stage's time is shared out by its forwards'. `ranges`: the layers of each stage.
LayerWork work_of(const Costs& costs, const std::vector<LayerRange>& ranges, const ForwardTimes& forwards);

// Both drawn to one scale of time, the measured one above: one SVG file, and a Chrome trace with a process each.
std::string draw_svg_comparison(const Simulation& measured, const Simulation& simulated, const std::string& title);
std::string draw_chrome_trace_comparison(const Simulation& measured, const Simulation& simulated);

}  // namespace gantry::schedule
