// Times and bytes of layers and stages, from which an estimate is put together.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/estimate.h"
#include "gantry/planner/layout.h"
#include "gantry/planner/rank_parameters.h"
#include "gantry/schedule/schedule.h"

namespace gantry::planner {

// Of one microbatch: a layer, the embedding or the head.
struct PartCosts {
  Seconds forward, input_gradient, weight_gradient, core;
  double kept = 0, kept_core = 0, kept_inputs = 0, kept_whole = 0, kept_attention = 0, working = 0;
};

// What depends on tensor, context, expert, microbatch and sequence parallelism alone. Layouts that differ elsewhere
// share it.
struct CostTable {
  std::vector<PartCosts> layers;
  PartCosts embedding, head;
  ModelParameters parameters;
};
CostTable make_cost_table(const Workload& workload, const Layout& layout, const Cluster& cluster);

// Of one stage and one microbatch.
struct StageTimes {
  Seconds forward, input_gradient, weight_gradient;
  double kept = 0;         // from forward to backward
  double kept_inputs = 0;  // from input gradient to weight gradient
  double working = 0;      // bytes of the largest part that is computed again, and of its backward
  HeldParameters parameters;
  // Elements: of the largest layer, of the larger of embedding and head, and of both where they are tied.
  double largest_layer = 0, largest_end = 0, tied_end = 0;

  double backward() const { return input_gradient.sum() + weight_gradient.sum(); }
};

// Of one rank and one microbatch, where all ranks of a pipeline compute embedding and head.
struct VocabularyPart {
  Seconds embedding_forward, embedding_backward, head_forward, head_combine, head_backward;
  double kept = 0;     // bytes from the head's forward to its backward
  double working = 0;  // bytes that its passes hold at their most beside what was kept
  HeldParameters parameters;

  Seconds seconds() const;
};

struct LayoutCosts {
  std::vector<std::vector<int>> stages_of_rank;
  std::vector<StageTimes> stages;
  int microbatches = 1;
  double hop = 0;                            // of a message between stages
  std::optional<VocabularyPart> vocabulary;  // absent: the first and the last stage have them
};

// Layers of each stage. ConfigError where there are too few.
std::vector<int> layers_of(const Workload& workload, const Layout& layout,
                           const std::vector<std::vector<int>>& stages_of_rank);
LayoutCosts make_layout_costs(const Workload& workload, const Layout& layout, const Cluster& cluster,
                              const CostTable& table, const std::vector<std::vector<int>>& stages_of_rank,
                              const std::vector<int>& layers);

// What a rank does once in a step, and what of it nothing hides.
struct OnceSeconds {
  double data = 0, optimizer = 0, other = 0;
};
OnceSeconds once_seconds(const Workload& workload, const Layout& layout, const Cluster& cluster,
                         const LayoutCosts& costs, int rank);

Memory rank_memory(const Workload& workload, const Layout& layout, const LayoutCosts& costs, int rank,
                   double activations);

// What the simulator says of a step's passes: it depends on no states.
struct PipelineRun {
  double seconds = 0, bubble = 0;
  std::vector<double> activations;  // bytes at each rank's peak, logits among them
};
// `known`: of a shared vocabulary its schedule, validated; null where it has to be made.
PipelineRun run_pipeline(const Workload& workload, const Layout& layout, const LayoutCosts& costs,
                         const schedule::Schedule* known = nullptr);
// What estimate() does, with what is known already.
Estimate estimate_with(const Workload& workload, const Layout& layout, const Cluster& cluster, const LayoutCosts& costs,
                       const PipelineRun& run);
double least_seconds_with(const Workload& workload, const Layout& layout, const Cluster& cluster,
                          const LayoutCosts& costs, bool splits_backward);
// The same without what a step does once.
double least_pipeline_seconds(const Workload& workload, const LayoutCosts& costs, bool splits_backward);
// Of the least that each rank holds, one microbatch at a time, the most.
double least_memory_with(const Workload& workload, const Layout& layout, const LayoutCosts& costs);

// What objection() says of sizes alone: not of the schedule, nor of how layers lie.
std::optional<std::string> sizes_objection(const Workload& workload, const Layout& layout, const Cluster& cluster);

// The stages that a schedule places, and whether it splits backwards into two.
struct SchedulePlan {
  std::vector<std::vector<int>> stages_of_rank;
  bool splits_backward = false;
};
SchedulePlan schedule_plan(const Layout& layout, int microbatches);

}  // namespace gantry::planner
