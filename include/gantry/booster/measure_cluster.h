// Measures this machine, or the hosts of a job, for the planner: `gantry plan measure`.
#pragma once

#include <functional>

#include "gantry/comm/world.h"
#include "gantry/planner/cluster.h"

namespace gantry {

// Called on every rank before each measurement, with the number of finished measurements and of all measurements.
using MeasureProgress = std::function<void(int done, int all)>;

// Measures the devices of the ranks and the links between them, and returns them as a cluster, whose rates are rounded
// to four digits. planner::to_yaml() writes it as a cluster file. Throws ConfigError unless all hosts have the same
// number of ranks and the ranks of each host are consecutive. Other work on the machine falsifies the result.
// Collective over the world.
planner::Cluster measure_cluster(World& world, const MeasureProgress& progress = {});

}  // namespace gantry
