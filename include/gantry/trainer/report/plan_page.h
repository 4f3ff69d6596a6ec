// A plan as one HTML page in the style of the run report, without scripts.
#pragma once

#include <string>

#include "gantry/planner/search.h"

namespace gantry {

// Returns the page of a search that found layouts (planner::require_layouts()): time and memory of the best layouts by
// part, the Pareto front of time and memory, and the effect of changes of the cluster. The front and the changes are
// further searches. `title`: the heading, such as the path of the configuration. All texts are escaped.
std::string plan_page(const std::string& title, const planner::PlanRequest& request, const planner::Cluster& cluster,
                      const planner::SearchResult& found);

}  // namespace gantry
