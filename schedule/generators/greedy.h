// Schedules made by running the pipeline in simulated time and taking, at each moment, the action that a rank can best
// do: what the heuristics of the zero-bubble papers (arXiv 2401.10241, 2405.15362) come down to.
#pragma once

#include <array>

#include "gantry/schedule/generators/generator.h"

namespace gantry::schedule {

struct GreedyOptions {
  double forward = 1, input_gradient = 1, weight_gradient = 1;  // of one stage
  double hop = 0;
  int limit = 1;             // chunk activations that a rank may hold
  double waiting_share = 1;  // of an activation that is held from I to W
  bool split_backward = true;
};

// What makes a schedule better than another, the first figure first: the longest rank, the whole, the activations held.
using Length = std::array<double, 3>;
Length length_of(const Schedule& schedule, const GreedyOptions& options);

// Fills the rows of a schedule whose stages are placed. Tries several rules for what goes first, and takes the one with
// the shortest longest rank, then the shortest whole. The limit is at least one more than the chunks before a rank's
// last.
Schedule make_greedy(const Schedule& placed, const GreedyOptions& options);

}  // namespace gantry::schedule
