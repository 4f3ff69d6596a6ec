// The layouts that a request leaves open.
#pragma once

#include <functional>

#include "gantry/planner/cluster.h"
#include "gantry/planner/configured.h"

namespace gantry::planner {

// Gives each of them once. Their sizes multiply to the cluster's ranks; schedules may still refuse them.
void visit_layouts(const PlanRequest& request, const Cluster& cluster, const std::function<void(const Layout&)>& visit);

}  // namespace gantry::planner
