// The choice of `schedule.recompute: auto`, in the output of `gantry config` and `gantry schedule`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gantry/planner/recompute.h"
#include "gantry/schedule/pipeline_stage_manager.h"

namespace gantry::cli {

// `layers`: the layers of each stage.
std::string to_text(const planner::RecomputeChoice& choice, const std::vector<LayerRange>& layers);
nlohmann::ordered_json to_json(const planner::RecomputeChoice& choice);

}  // namespace gantry::cli
