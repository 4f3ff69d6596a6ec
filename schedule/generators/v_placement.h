// For schedules whose two chunks per rank go forth and back: rank r has stages r and 2 * ranks - 1 - r.
#pragma once

#include "gantry/schedule/generators/generator.h"

namespace gantry::schedule {

// Rows are empty. ConfigError unless there are two chunks.
Schedule empty_v_schedule(const std::string& name, const PipelineSizes& sizes);

// The legs of a microbatch's way: forward down the ranks and up, backward down and up.
enum VLeg { kForwardDown, kForwardUp, kBackwardDown, kBackwardUp };
constexpr int kVLegs = 4;

constexpr bool is_forward_leg(int leg) { return leg < kBackwardDown; }
constexpr bool is_near_leg(int leg) { return leg == kForwardDown || leg == kBackwardUp; }  // of a rank's lower stage
// The rank that the data of a leg comes from, where it is one.
constexpr int sender_on(int leg, int rank) { return leg == kForwardDown || leg == kBackwardDown ? rank - 1 : rank + 1; }

}  // namespace gantry::schedule
