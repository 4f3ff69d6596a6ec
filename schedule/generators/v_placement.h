// For schedules with two chunks per rank whose stages pass through the ranks in both directions: rank r has stages r
// and 2 * ranks - 1 - r.
#pragma once

#include "gantry/schedule/generators/generator.h"

namespace gantry::schedule {

// A schedule with empty rows. Throws ConfigError if the number of chunks is not two.
Schedule empty_v_schedule(const std::string& name, const PipelineSizes& sizes);

// The legs of a microbatch's path: forward down the ranks and up, backward down and up.
enum VLeg { kForwardDown, kForwardUp, kBackwardDown, kBackwardUp };
constexpr int kVLegs = 4;

constexpr bool is_forward_leg(int leg) { return leg < kBackwardDown; }
constexpr bool is_near_leg(int leg) {
  return leg == kForwardDown || leg == kBackwardUp;
}  // legs of a rank's lower stage
// The rank that a leg receives its data from, if there is one.
constexpr int sender_on(int leg, int rank) { return leg == kForwardDown || leg == kBackwardDown ? rank - 1 : rank + 1; }

}  // namespace gantry::schedule
