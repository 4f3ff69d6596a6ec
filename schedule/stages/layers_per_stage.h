// The number of layers of each stage, by `schedule.layers`.
#pragma once

#include <vector>

#include "gantry/core/config.h"
#include "gantry/schedule/layer_work.h"

namespace gantry {

// The work that `balanced` uses: `work`, or the times that the named run measured (schedule/stages/measured_work.h) for
// the same number of layers.
LayerWork weighed_work(const ScheduleOptions& schedule, const LayerWork& work);

// Layers per stage for `schedule.layers`; only `balanced` uses more than the number of layers. Throws ConfigError if
// they cannot be distributed; see distribute_layers, distribute_by_work and weighed_work.
std::vector<int> layers_per_stage(const ScheduleOptions& schedule, const LayerWork& work,
                                  const std::vector<int>& rank_of_stage);

}  // namespace gantry
