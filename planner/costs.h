// Times and bytes of layers, stages and ranks, from which an estimate is composed.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/estimate.h"
#include "gantry/planner/layout.h"
#include "gantry/planner/parameters.h"
#include "gantry/schedule/schedule.h"

namespace gantry::planner {

// ---- A part of the model (a layer, the embedding, the head, ...) and one microbatch: part_costs.cpp

// The fields are those of PartOperations.
struct PartCosts {
  Seconds forward, input_gradient, weight_gradient, core;
  double kept = 0, kept_core = 0, kept_inputs = 0, kept_layer_input = 0, kept_attention = 0, working = 0;
};

// Depends only on tensor, context, expert, microbatch and sequence parallelism. Layouts with equal values share it.
struct CostTable {
  std::vector<PartCosts> layers;  // all layers of the pipeline
  PartCosts patches, features;    // the image encoder before and after its layers
  PartCosts embedding, head;
  ModelParameters parameters;
};
CostTable make_cost_table(const Workload& workload, const Layout& layout, const Cluster& cluster);

// The following templates are for PartOperations and PartCosts.

// Bytes that recomputation keeps from forward to backward.
template <class Part>
double kept_with(const Part& part, Recompute how) {
  switch (how) {
    case Recompute::kSelective:
      return part.kept - part.kept_core;
    case Recompute::kParts:
      return part.kept_inputs;
    case Recompute::kFull:
      return part.kept_layer_input;
    default:
      return part.kept;
  }
}

// Bytes that recomputation allocates again. Except for kSelective, the gradient of the part's output is allocated
// meanwhile.
template <class Part>
double made_again(const Part& part, Recompute how) {
  switch (how) {
    case Recompute::kSelective:
      return part.kept_core;
    case Recompute::kParts:  // attention and MLP separately, each from its kept input
      return std::max(part.kept_attention, part.kept - part.kept_attention) - part.kept_inputs / 2 +
             part.kept_layer_input;
    case Recompute::kFull:
      return part.kept;
    default:
      return 0;
  }
}

// The recomputed part of the forward; null if nothing is recomputed.
template <class Part>
auto computed_again(const Part& part, Recompute how) -> decltype(&part.forward) {
  if (how == Recompute::kNone) return nullptr;
  return how == Recompute::kSelective ? &part.core : &part.forward;
}

// ---- A stage and one microbatch: stage_costs.cpp

struct StageTimes {
  Seconds forward, input_gradient, weight_gradient;
  double kept = 0;         // bytes from forward to backward
  double kept_inputs = 0;  // bytes from input gradient to weight gradient
  double working = 0;      // bytes of the largest recomputed part and its backward
  HeldParameters parameters;
  // Elements of the largest layer, of the larger of embedding and head, and of both if they are tied.
  double largest_layer = 0, largest_end = 0, tied_end = 0;

  double backward() const { return input_gradient.sum() + weight_gradient.sum(); }
};

// The part of a rank in the vocabulary, if all ranks of a pipeline compute embedding and head (parallel.vocabulary:
// pipeline; see plugins/vocabulary_passes and schedule/vocabulary_actions.h).
struct VocabularyPart {
  Seconds embedding_forward, embedding_backward, head_forward, head_combine, head_backward;
  double kept = 0;     // bytes from the head's forward to its backward
  double working = 0;  // peak of the bytes that its passes allocate in addition to `kept`
  HeldParameters parameters;

  Seconds seconds() const;
};

// The memory of a teacher on the fullest rank of a pipeline rank of the student.
struct TeacherMemory {
  double held = 0;     // weights, and the logits of a step in the layout of the student
  double passing = 0;  // peak of the bytes that its passes and the exchange of logits allocate in addition
};

struct LayoutCosts {
  std::vector<std::vector<int>> stages_of_rank;
  std::vector<StageTimes> stages;
  int microbatches = 1;
  double hop = 0;                            // seconds of a message between stages
  bool has_two_tables = false;               // two stages have the table of tokens, and add up its gradients
  std::optional<VocabularyPart> vocabulary;  // absent: the first and the last stage compute embedding and head
  double seconds_ahead = 0;                  // forward passes before the step: of a teacher, or of kto
  std::vector<TeacherMemory> teacher;        // by pipeline rank; empty: no teacher
};
LayoutCosts make_layout_costs(const Workload& workload, const Layout& layout, const Cluster& cluster,
                              const CostTable& table, const std::vector<std::vector<int>>& stages_of_rank,
                              const std::vector<int>& layers);

// The parameters of all stages, without costs. `layers`: of each stage.
LayoutCosts held_by_stages(const Workload& workload, const Layout& layout,
                           const std::vector<std::vector<int>>& stages_of_rank, const std::vector<int>& layers);

// The number of layers of each stage. Throws ConfigError if they cannot be distributed, or a list has another number
// of layers than the model.
std::vector<int> layers_of(const Workload& workload, const Layout& layout,
                           const std::vector<std::vector<int>>& stages_of_rank);

// The stage with the embedding of the tokens, and the end of an image encoder: with an encoder that of the decoder's
// first layer, otherwise the first one.
int embedding_stage(const models::DecoderSpec& model, const std::vector<int>& layers);

// Why the layout cannot share the vocabulary; empty if it can, or if it does not.
std::optional<std::string> vocabulary_objection(const Workload& workload, const Layout& layout);

// ---- A teacher: teacher_costs.cpp

// `stages_of_rank`: of the student. Empty without a teacher.
std::vector<TeacherMemory> teacher_memory(const Workload& workload, const Layout& layout,
                                          const std::vector<std::vector<int>>& stages_of_rank);
// The time of its forward passes in a step, and of the exchange of its logits.
double teacher_seconds(const Workload& workload, const Layout& layout, const Cluster& cluster,
                       const std::vector<std::vector<int>>& stages_of_rank);
// The time of the forward passes of all microbatches of a step without backwards.
double forward_seconds(const LayoutCosts& costs);
// Why the teacher cannot have its layout; empty if it can, or without a teacher.
std::optional<std::string> teacher_objection(const Workload& workload, const Layout& layout, const Cluster& cluster);

// ---- A rank and a step: rank_costs.cpp

// The parameters of all stages of a rank, and its part of a shared vocabulary.
HeldParameters parameters_of(const LayoutCosts& costs, int rank);
// The time of the passes of all microbatches: of the rank's stages, and including a shared vocabulary.
Seconds stage_work_of(const LayoutCosts& costs, int rank);
Seconds work_of(const LayoutCosts& costs, int rank);

// The time of work that a rank does once per step. `data` is the part that is not overlapped.
struct OnceSeconds {
  double data = 0, optimizer = 0, other = 0;
};
OnceSeconds once_seconds(const Workload& workload, const Layout& layout, const Cluster& cluster,
                         const LayoutCosts& costs, int rank);

Memory rank_memory(const Workload& workload, const Layout& layout, const LayoutCosts& costs, int rank,
                   double activations);

// ---- The pipeline: pipeline_costs.cpp

// The placement of the stages by a schedule, and whether the schedule splits backwards in two.
struct SchedulePlan {
  std::vector<std::vector<int>> stages_of_rank;
  bool splits_backward = false;
};
SchedulePlan schedule_plan(const Layout& layout, int microbatches);

// The schedule of the runtime, including the passes of a shared vocabulary.
schedule::Schedule schedule_with_vocabulary(const Workload& workload, const Layout& layout, int microbatches);

// The result of simulating the passes of a step. It does not depend on zero, shard or gather.
struct PipelineRun {
  double seconds = 0, bubble = 0;
  std::vector<double> activations;  // peak bytes of each rank, including logits
};
// `known`: the validated schedule of a shared vocabulary; null if it has to be made.
PipelineRun run_pipeline(const Workload& workload, const Layout& layout, const LayoutCosts& costs,
                         const schedule::Schedule* known = nullptr);

// ---- Estimates from known costs: estimate.cpp

Estimate estimate_with(const Workload& workload, const Layout& layout, const Cluster& cluster, const LayoutCosts& costs,
                       const PipelineRun& run);

// Like objection(), but only for the sizes, not for the schedule or the distribution of layers.
std::optional<std::string> sizes_objection(const Workload& workload, const Layout& layout, const Cluster& cluster);

// ---- Lower bounds: bounds.cpp

// For a single layout: the step time, and the time without the work that is done once per step.
double least_seconds_with(const Workload& workload, const Layout& layout, const Cluster& cluster,
                          const LayoutCosts& costs, bool splits_backward);
double least_pipeline_seconds(const Workload& workload, const LayoutCosts& costs, bool splits_backward);
// The largest memory of a rank if every rank has only one microbatch in flight.
double least_memory_with(const Workload& workload, const Layout& layout, const LayoutCosts& costs);

// Sums of a CostTable, for bounds of all layouts with the same sizes, with any schedule, recomputation and memory
// state. A search skips thousands of layouts by one such bound. `ends`: all parts that are not layers.
struct PassTotals {
  double layers = 0, ends = 0;  // seconds of one microbatch, forward and backward
  double least_forward = 0;     // seconds of the fastest layer
  double least_held = 0;        // bytes of the smallest layer in its backward, with the recomputation that needs least
  HeldParameters in_layers, in_ends;
};
PassTotals pass_totals(const CostTable& table, const std::vector<Recompute>& recomputations);

// Placements that the search may try: a shared vocabulary, and stages without layers.
struct OpenPlacement {
  bool may_share_vocabulary = false, may_leave_stages_empty = false;
};

// The average rank's work, its wait at the start, and the other work of a step: the longest rank takes at least as
// long.
double least_seconds_of_sizes(const Workload& workload, const Layout& sizes, const Cluster& cluster,
                              const PassTotals& totals, const OpenPlacement& placement);
// The bytes of the average rank, with the value of `zeros` that needs least.
double least_bytes_of_sizes(const Workload& workload, const Layout& sizes, const PassTotals& totals,
                            const OpenPlacement& placement, const std::vector<int>& zeros);

}  // namespace gantry::planner
