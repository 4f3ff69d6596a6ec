// A run's real timeline as a simulation, so that it is drawn the same way, and the costs that it shows.
#pragma once

#include <string>
#include <vector>

#include "gantry/schedule/simulate.h"

namespace gantry::schedule {

using Timeline = std::vector<std::vector<TimedAction>>;  // compute actions by rank, in the order in which they ran

// The figures of a timeline of `schedule` (compute-only form): makespans and bubble from its times, where the work of a
// rank is what it computed; peaks as simulated.
Simulation figures_of(const Timeline& timeline, const Schedule& schedule);

// Each stage's mean times. A stage whose backwards are never split gives all of them to the input gradient. Stages that
// ran nothing cost nothing. Messages cost nothing: their time is not in the actions'.
Costs costs_of(const Timeline& timeline, int num_stages);

// Both drawn to one scale of time, the measured one above: one SVG file, and a Chrome trace with a process each.
std::string draw_svg_beside(const Simulation& measured, const Simulation& simulated, const std::string& title);
std::string draw_chrome_trace_beside(const Simulation& measured, const Simulation& simulated);

}  // namespace gantry::schedule
