// The clusters that are known by name.
#pragma once

#include <vector>

#include "gantry/planner/cluster.h"

namespace gantry::planner {

const std::vector<Cluster>& builtin_clusters();

}  // namespace gantry::planner
