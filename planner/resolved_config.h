// The values that follow from a configuration without building its model: mesh, stages, step, context and expert
// parallelism, recomputation.
#pragma once

#include <optional>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/mesh.h"
#include "gantry/planner/recompute.h"
#include "gantry/planner/resolved_context.h"
#include "gantry/planner/resolved_experts.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/schedule/simulate.h"

namespace gantry::planner {

// The sizes of one step, and its simulation.
struct ResolvedStep {
  int samples, replica_samples, microbatches;
  long long tokens;
  schedule::Simulation simulation;              // with equal stages
  std::optional<schedule::Simulation> weighed;  // with the work of each stage, scaled to the same total

  // Relative increase of the step time compared with equal stages.
  double imbalance() const { return weighed->makespan_max_rank / simulation.makespan_max_rank - 1; }
  int microbatch_samples() const { return (replica_samples + microbatches - 1) / microbatches; }  // the largest number
};

// A configuration, and the values derived from it.
struct ResolvedConfig {
  Config config;
  Mesh mesh;
  PipelineStageManager stages;       // seen from pipeline rank 0
  std::vector<LayerRange> layers;    // by stage; empty: the number of layers is unknown
  int tower_layers;                  // number of layers of an image encoder, which come first; 0: there is none
  std::vector<double> work;          // by stage; empty: the sizes of the matrices are unknown
  std::optional<ResolvedStep> step;  // empty: the configuration has no data section
  std::optional<ResolvedContext> context;
  std::optional<ResolvedExperts> experts;
  std::optional<RecomputeChoice> recompute;  // set if schedule.recompute is auto
};

// Derives the values. Throws ConfigError if the configuration is wrong or does not fit its own mesh.
ResolvedConfig resolve_config(Config config);

// Returns the pipeline rank of each stage.
std::vector<int> ranks_of_stages(const PipelineStageManager& manager);

}  // namespace gantry::planner
