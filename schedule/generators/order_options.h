// The times and the memory limit for heuristics, and the figures by which they compare schedules.
#pragma once

#include <array>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

struct OrderOptions {
  double forward = 1, input_gradient = 1, weight_gradient = 1;  // durations for one stage
  double hop = 0;
  int limit = 1;             // chunk activations that a rank may hold
  double waiting_share = 1;  // share of an activation that is held from I to W
  bool split_backward = true;
};

// The times in integers, so that their sums are exact and ties are exact.
OrderOptions full_times(OrderOptions options);

// The figures that rank schedules, the most important first: time of the longest rank, total time, activations held.
using Length = std::array<double, 3>;
Length length_of(const Schedule& schedule, const OrderOptions& options);

}  // namespace gantry::schedule
