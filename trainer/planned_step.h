// report.json's `plan`: a measured step, and the planner's prediction for it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/planner/cluster.h"
#include "gantry/planner/estimate.h"
#include "gantry/trainer/run_report.h"

namespace gantry {

// Returns the planner's estimate of the run, with the mesh's data-parallel size, on the devices of the
// cluster. Throws ConfigError like planner::plan_request(), or if the planner does not support the layout.
planner::Estimate predicted_step(const Config& config, const planner::Cluster& cluster, const Mesh& mesh);

// Returns {`steps`, `measured`} of the rank that works longest and, if facts.cluster is set, also {`cluster`,
// `predicted`, `largest_gap`}. Null except on rank 0, and null without timed steps. Collective over the mesh.
nlohmann::ordered_json planned_step(const Config& config, const ProcessGroupMesh& mesh, const RunFacts& facts);

}  // namespace gantry
