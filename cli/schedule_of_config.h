// The schedule of a configuration's step, for `gantry schedule`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/pipeline_stage_manager.h"
#include "gantry/planner/recompute.h"
#include "gantry/schedule/simulate.h"

namespace gantry::cli {

struct ConfiguredStep {
  schedule::Schedule schedule;  // what is computed
  schedule::Costs costs;        // of a described decoder's stages, by its multiplications; the mean rank's forward is 1
  std::string gather;           // empty: parameters are not cut
  std::string offload;
  std::optional<planner::RecomputeChoice> recompute;  // where it is auto
  std::vector<LayerRange> layers;                     // of each stage; empty for other models
};

bool is_config(const std::string& source);  // by its name

// `microbatches` in place of those that the configuration has. ConfigError as of `gantry config`, and where it states
// neither.
ConfiguredStep step_of_config(const std::string& path, std::optional<int> microbatches);

}  // namespace gantry::cli
