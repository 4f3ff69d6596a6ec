// The schedule and costs of one step of a configuration.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/planner/recompute.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/schedule/simulate.h"

namespace gantry::planner {

struct ConfiguredStep {
  schedule::Schedule schedule;  // computations only
  schedule::Costs costs;  // by the multiplications of a described decoder's stages; 1: the forward of the average rank
  std::string gather;     // parallel.gather; empty: parameters are not sharded
  std::string offload;
  std::optional<RecomputeChoice> recompute;  // set if schedule.recompute is auto
  std::vector<LayerRange> layers;            // by stage; empty: the model is not a described decoder
};

// `microbatches` replaces the number in the configuration. Throws ConfigError like resolve_config(), or if the number
// of microbatches is unknown.
ConfiguredStep configured_step(const Config& config, std::optional<int> microbatches);

}  // namespace gantry::planner
