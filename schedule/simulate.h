// Runs a schedule in simulated time.
#pragma once

#include <string>
#include <vector>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

struct Costs {
  double forward = 1;  // of a rank's whole share of one microbatch; a chunk takes 1 / chunks of it
  double input_gradient = 1;
  double weight_gradient = 1;  // a full backward costs input_gradient + weight_gradient
  double hop = 0;              // latency of one message; occupies no rank
};

struct TimedAction {
  Action action;
  double start = 0;
  double end = 0;
};

struct Simulation {
  std::vector<std::vector<TimedAction>> timeline;  // by rank
  double makespan_global = 0;         // first start to last end (no optimizer barrier between steps would hide less)
  double makespan_max_rank = 0;       // the longest (end - start) of any rank
  double bubble_rate = 0;             // (makespan_max_rank - m (F + I + W)) / makespan_max_rank
  std::vector<int> peak_activations;  // chunk activations per rank, held from F to B, or to W of a split backward
};

// Each action starts when its rank is free and its data is there. An overlapped pair costs the sum of its parts: it
// starts when the data of both is there, and the results of both are ready at its end. Without backwards the work is m
// F, and no activation is held longer than its forward. Takes the compute-only form of a valid schedule; else
// ConfigError.
Simulation simulate(const Schedule& schedule, const Costs& costs = {});

// A lane a rank. Text: every action with its label, in at most three bands of `width` columns, or one band with a
// letter a column where that is not enough. SVG: one self-contained file. Chrome trace: a unit of cost is shown as a
// millisecond.
std::string draw_text(const Simulation& simulation, int width = 100);
std::string draw_svg(const Simulation& simulation, const std::string& title);
std::string draw_chrome_trace(const Simulation& simulation);

}  // namespace gantry::schedule
