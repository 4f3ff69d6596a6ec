// report.json's `plan`: a step as it was measured, beside what the planner predicts.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/planner/cluster.h"
#include "gantry/planner/estimate.h"
#include "gantry/trainer/run_report.h"

namespace gantry {

// What the planner says of the run on so many devices of the cluster. ConfigError as of planner::plan_request(), and
// where the layout is none of the planner's.
planner::Estimate predicted_step(const Config& config, const planner::Cluster& cluster, const Mesh& mesh);

// {`steps`, `measured`} of the rank that works longest, and with a cluster {`cluster`, `predicted`, `largest_gap`}; on
// rank 0, else null. Collective over the mesh.
nlohmann::ordered_json planned_step(const Config& config, const ProcessGroupMesh& mesh, const RunFacts& facts);

}  // namespace gantry
