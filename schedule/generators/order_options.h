// What heuristics are told of the times and of the memory, and what they compare schedules by.
#pragma once

#include <array>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

struct OrderOptions {
  double forward = 1, input_gradient = 1, weight_gradient = 1;  // of one stage
  double hop = 0;
  int limit = 1;             // chunk activations that a rank may hold
  double waiting_share = 1;  // of an activation that is held from I to W
  bool split_backward = true;
};

// The times in whole numbers, so that sums of them are exact and a tie is a tie.
OrderOptions whole_times(OrderOptions options);

// What makes a schedule better than another, the first figure first: the longest rank, the whole, the activations held.
using Length = std::array<double, 3>;
Length length_of(const Schedule& schedule, const OrderOptions& options);

}  // namespace gantry::schedule
