#include "gantry/planner/layout_costs.h"

#include <algorithm>

#include "gantry/core/config.h"
#include "gantry/core/schedule_choice.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/collectives.h"
#include "gantry/planner/frozen_costs.h"
#include "gantry/planner/operations.h"
#include "gantry/planner/recomputed_part.h"
#include "gantry/planner/shared_vocabulary.h"
#include "gantry/schedule/schedule.h"

namespace gantry::planner {
namespace {

using Kind = Operation::Kind;

class Pricing {
 public:
  Pricing(const Workload& workload, const Layout& layout, const Cluster& cluster)
      : layout_(layout), cluster_(cluster), peak_(cluster.device.matrix_flops.at(workload.precision)) {}

  Seconds of(const std::vector<Operation>& operations) const {
    Seconds seconds;
    for (const Operation& operation : operations) add(operation, seconds);
    return seconds;
  }
  // Ranks that meet within a part wait for the one that was slowest meanwhile, whatever it computed: between one
  // meeting of a backward and the next lie gradients of weights too.
  void add_waiting(PartCosts& part) const {
    const double tensor = part.forward.tensor + part.input_gradient.tensor,
                 context = part.forward.context + part.input_gradient.context;
    for (Seconds* seconds : {&part.forward, &part.input_gradient, &part.weight_gradient, &part.core}) {
      const double waited = (cluster_.meeting_slowdown - 1) * seconds->compute;
      if (tensor > 0)
        seconds->tensor += waited;
      else if (context > 0)
        seconds->context += waited;
    }
  }

 private:
  double core(double flops) const { return flops / (peak_ * cluster_.device.attention_efficiency); }
  double moved(double bytes, const std::string& by = "") const {
    const Device& device = cluster_.device;
    const auto own = device.operation_efficiency.find(by);
    const double share = own == device.operation_efficiency.end() ? device.memory_efficiency : own->second;
    return bytes / (device.memory_bytes_per_second * share);
  }
  double at_least(double seconds) const { return std::max(seconds, cluster_.device.operation_seconds); }

  void add(const Operation& operation, Seconds& seconds) const {
    const Device& device = cluster_.device;
    switch (operation.kind) {
      case Kind::kProduct: {
        const double computed = (operation.flops + device.matrix_half_flops) / (peak_ * device.matrix_efficiency);
        seconds.compute += at_least(std::max(computed, moved(operation.bytes)));
        break;
      }
      case Kind::kCore:
        seconds.compute += at_least(std::max(core(operation.flops), moved(operation.bytes)));
        break;
      case Kind::kElementwise:
        seconds.compute += at_least(moved(operation.bytes, operation.name));
        break;
      case Kind::kReduce:
        seconds.tensor += at_least(all_reduce(tensor_group(layout_), operation.bytes, cluster_));
        break;
      case Kind::kHalfReduce:
        seconds.tensor += at_least(half_reduce(tensor_group(layout_), operation.bytes, cluster_));
        break;
      case Kind::kPass: {  // beside the core, which it slows down
        const double passing = message({2, context_group(layout_).stride}, operation.bytes, cluster_);
        const double extra = core(operation.flops);
        seconds.context += std::max(0.0, passing - extra) + (cluster_.overlap_slowdown - 1) * std::min(passing, extra);
        break;
      }
      case Kind::kHeads:
        seconds.context += at_least(exchange(context_group(layout_), operation.bytes, cluster_));
        break;
      case Kind::kGatherKeys:
        seconds.context += at_least(half_reduce(context_group(layout_), operation.bytes, cluster_));
        break;
      case Kind::kExchange:
        seconds.expert += at_least(exchange(expert_group(layout_), operation.bytes, cluster_));
        break;
    }
  }

  const Layout& layout_;
  const Cluster& cluster_;
  double peak_;
};

PartCosts part_costs(const PartOperations& part, const Pricing& pricing) {
  PartCosts costs{.forward = pricing.of(part.forward),
                  .input_gradient = pricing.of(part.input_gradient),
                  .weight_gradient = pricing.of(part.weight_gradient),
                  .core = pricing.of(part.core),
                  .kept = part.kept,
                  .kept_core = part.kept_core,
                  .kept_inputs = part.kept_inputs,
                  .kept_whole = part.kept_whole,
                  .kept_attention = part.kept_attention,
                  .working = part.working};
  pricing.add_waiting(costs);
  return costs;
}

// What is computed again comes before the input's gradient.
void add_layer(StageTimes& stage, const PartCosts& layer, Recompute recompute) {
  stage.forward += layer.forward;
  stage.input_gradient += layer.input_gradient;
  stage.weight_gradient += layer.weight_gradient;
  stage.kept_inputs += layer.kept - layer.kept_core;
  if (const auto* again = computed_again(layer, recompute)) stage.input_gradient += *again;
  stage.kept += kept_with(layer, recompute);
  stage.working = std::max(stage.working, made_again(layer, recompute) + layer.working);
}

// What stages hold of the ends where all ranks of a pipeline share the rest.
void add_rest_of_ends(std::vector<StageTimes>& stages, const CostTable& table, const Workload& workload,
                      const Layout& layout) {
  const HeldParameters first = first_without_table(table.parameters, workload, layout),
                       last = last_without_head(table.parameters, workload, layout);
  stages.front().parameters += first;
  stages.back().parameters += last;
}

void add_ends(std::vector<StageTimes>& stages, const CostTable& table) {
  const auto add = [&table](StageTimes& stage, const PartCosts& part, const HeldParameters& parameters) {
    add_layer(stage, part, Recompute::kNone);
    stage.parameters += parameters;
    stage.largest_end = std::max(stage.largest_end, parameters.dense);
    if (table.parameters.tied > 0) stage.tied_end += parameters.dense;
  };
  add(stages.front(), table.embedding, table.parameters.first);
  // When layers' backwards run, what the head kept is gone.
  stages.back().working -= std::min(stages.back().working, table.head.kept);
  add(stages.back(), table.head, table.parameters.last);
  if (stages.size() > 1) return;
  stages.back().parameters.dense -= table.parameters.tied;  // it is held once
  stages.back().parameters.trained_dense -= table.parameters.trained_tied;
  stages.back().tied_end -= table.parameters.tied;
}

}  // namespace

CostTable make_cost_table(const Workload& workload, const Layout& layout, const Cluster& cluster) {
  const Pricing pricing(workload, layout, cluster);
  CostTable table;
  const auto& layers = workload.model.layers;
  for (std::size_t index = 0; index < layers.size(); ++index) {
    const bool repeats = index > 0 && layers[index] == layers[index - 1];
    table.layers.push_back(repeats ? table.layers.back()
                                   : part_costs(layer_operations(workload, layers[index], layout), pricing));
  }
  table.embedding = part_costs(embedding_operations(workload, layout), pricing);
  table.head = part_costs(head_operations(workload, layout), pricing);
  table.parameters = held_parameters(workload.model, layout.tensor, layout.expert, workload.trained);
  if (!workload.trained.is_all()) leave_out_frozen(table, workload, layout);
  return table;
}

std::vector<int> layers_of(const Workload& workload, const Layout& layout,
                           const std::vector<std::vector<int>>& stages_of_rank) {
  std::vector<int> rank_of_stage;
  for (std::size_t rank = 0; rank < stages_of_rank.size(); ++rank)
    for (const int stage : stages_of_rank[rank]) {
      if (stage >= static_cast<int>(rank_of_stage.size())) rank_of_stage.resize(stage + 1);
      rank_of_stage[stage] = static_cast<int>(rank);
    }
  LayerWork work = models::layer_work_of(workload.model);
  if (layout.shares_vocabulary) work.first = work.last = 0;  // all ranks do that
  ScheduleConfig config;
  if (layout.balanced) config.layers = std::string("balanced");
  if (!layout.layers.empty()) config.layers = layout.layers;
  return layers_per_stage(config, work, rank_of_stage);
}

LayoutCosts make_layout_costs(const Workload& workload, const Layout& layout, const Cluster& cluster,
                              const CostTable& table, const std::vector<std::vector<int>>& stages_of_rank,
                              const std::vector<int>& layers) {
  LayoutCosts costs;
  costs.stages_of_rank = stages_of_rank;
  costs.microbatches = layout.microbatches_of(workload.batch);
  costs.stages.resize(layers.size());
  std::size_t next = 0;
  for (std::size_t stage = 0; stage < layers.size(); ++stage)
    for (int each = 0; each < layers[stage]; ++each, ++next) {
      add_layer(costs.stages[stage], table.layers[next], layout.recompute);
      const HeldParameters& held = table.parameters.layers[next];
      costs.stages[stage].parameters += held;
      costs.stages[stage].largest_layer = std::max(costs.stages[stage].largest_layer, held.dense + held.experts);
    }
  if (layout.shares_vocabulary) {
    costs.vocabulary = shared_vocabulary(workload, layout, cluster, table);
    add_rest_of_ends(costs.stages, table, workload, layout);
  } else {
    add_ends(costs.stages, table);
  }
  const double tokens = static_cast<double>(workload.sequence) * layout.microbatch / layout.context /
                        (layout.sequence_parallel || workload.program.scatters_messages ? layout.tensor : 1);
  const double sent = value_bytes(workload.precision) * tokens * static_cast<double>(workload.model.hidden);
  costs.hop = message(pipeline_group(layout), sent, cluster);
  if (!workload.program.blocking_messages) return costs;
  for (std::size_t stage = 0; stage < costs.stages.size(); ++stage) {  // who sends waits as long as who receives
    if (stage + 1 < costs.stages.size()) costs.stages[stage].forward.pipeline += costs.hop;
    if (stage > 0) costs.stages[stage].input_gradient.pipeline += costs.hop;
  }
  return costs;
}

Seconds VocabularyPart::seconds() const {
  Seconds sum = embedding_forward;
  for (const Seconds& each : {embedding_backward, head_forward, head_combine, head_backward}) sum += each;
  return sum;
}

SchedulePlan schedule_plan(const Layout& layout, int microbatches) {
  const schedule::Schedule made =
      schedule::generate(layout.schedule, layout.pipeline, microbatches, layout.pipeline == 1 ? 0 : layout.chunks);
  const auto splits = [](const std::vector<schedule::Action>& row) {
    return std::any_of(row.begin(), row.end(), [](const schedule::Action& action) {
      return action.kind == schedule::ActionKind::kInputGradient;
    });
  };
  return {made.stages_of_rank, std::any_of(made.actions.begin(), made.actions.end(), splits)};
}

}  // namespace gantry::planner
