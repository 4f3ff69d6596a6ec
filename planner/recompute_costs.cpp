#include "gantry/planner/recompute_costs.h"

#include <algorithm>

#include "gantry/core/planted.h"
#include "gantry/planner/recomputed_part.h"

namespace gantry::planner {
namespace {

// What runs beside others counts with those.
double flops_of(const std::vector<Operation>& operations) {
  double flops = 0;
  for (const Operation& operation : operations)
    if (operation.kind != Operation::Kind::kPass) flops += operation.flops;
  return flops;
}

double flops_again(const PartOperations& part, Recompute how) {
  const auto* again = computed_again(part, how);
  return again ? flops_of(*again) : 0;
}

void add_part(schedule::StageCosts& stage, const PartOperations& part, Recompute how) {
  stage.forward += flops_of(part.forward);
  stage.input_gradient += flops_of(part.input_gradient) + flops_again(part, how);
  stage.weight_gradient += flops_of(part.weight_gradient);
  stage.activation += kept_with(part, how);
  stage.weight_input += part.kept - part.kept_core;
}

}  // namespace

RecomputeCosts::RecomputeCosts(const Workload& workload, const Layout& layout, const schedule::Schedule& schedule,
                               std::vector<int> layers)
    : workload_(workload),
      layout_(layout),
      schedule_(schedule),
      layers_(std::move(layers)),
      embedding_(embedding_operations(workload, layout)),
      head_(head_operations(workload, layout)) {
  const auto& specs = workload.model.layers;
  for (std::size_t index = 0; index < specs.size(); ++index)
    parts_.push_back(index > 0 && specs[index] == specs[index - 1] ? parts_.back()
                                                                   : layer_operations(workload, specs[index], layout));
  const ModelParameters parameters = held_parameters(workload.model, layout.tensor, layout.expert);
  held_.stages_of_rank = schedule.stages_of_rank;
  held_.microbatches = schedule.microbatches;
  int next = 0;
  for (const int count : layers_) {
    first_layer_.push_back(next);
    StageTimes& stage = held_.stages.emplace_back();
    for (int i = 0; i < count; ++i) stage.parameters += parameters.layers[next++];
  }
  held_.stages.front().parameters += parameters.first;
  held_.stages.back().parameters += parameters.last;
  if (held_.stages.size() == 1) held_.stages.back().parameters.dense -= parameters.tied;  // it is held once
}

schedule::StageCosts RecomputeCosts::stage_costs(int stage, Recompute how, int count) const {
  schedule::StageCosts costs{
      .forward = 0, .input_gradient = 0, .weight_gradient = 0, .activation = 0, .weight_input = 0};
  for (int i = 0; i < layers_[stage]; ++i)
    add_part(costs, parts_[first_layer_[stage] + i], i < count ? how : Recompute::kNone);
  if (stage == 0) add_part(costs, embedding_, Recompute::kNone);
  if (stage + 1 == stages()) add_part(costs, head_, Recompute::kNone);
  return costs;
}

double RecomputeCosts::working(int stage, Recompute how, int count) const {
  double most = 0;
  for (int i = 0; i < layers_[stage]; ++i) {
    const PartOperations& part = parts_[first_layer_[stage] + i];
    most = std::max(most, made_again(part, i < count ? how : Recompute::kNone) + part.working);
  }
  if (stage == 0) most = std::max(most, embedding_.working);
  // When layers' backwards run, what the head kept is gone.
  return stage + 1 == stages() ? std::max(most - head_.kept, head_.working) : most;
}

// What the simulator finds, from the row alone: a rank runs one action at a time.
double RecomputeCosts::peak(int rank, Recompute how, const std::vector<int>& counts) const {
  std::vector<schedule::StageCosts> costs(stages());
  for (const int stage : stages_of(rank)) costs[stage] = stage_costs(stage, how, counts[stage]);
  double held = 0, most = 0;
  for (const schedule::Action& action : schedule_.actions[rank]) {
    const schedule::StageCosts& of = costs[action.stage];
    if (action.kind == schedule::ActionKind::kForward) held += of.activation;
    if (action.kind == schedule::ActionKind::kBackward) held -= of.activation;
    if (action.kind == schedule::ActionKind::kInputGradient)
      held += (planted("peak-without-weight-inputs") ? 0 : of.weight_input) - of.activation;
    if (action.kind == schedule::ActionKind::kWeightGradient) held -= of.weight_input;
    most = std::max(most, held);
  }
  return most;
}

Memory RecomputeCosts::memory(int rank, Recompute how, const std::vector<int>& counts) const {
  LayoutCosts held = held_;
  for (const int stage : stages_of(rank)) held.stages[stage].working = working(stage, how, counts[stage]);
  return rank_memory(workload_, layout_, held, rank, peak(rank, how, counts));
}

schedule::Costs RecomputeCosts::costs(Recompute how, const std::vector<int>& counts) const {
  schedule::Costs all;
  for (int stage = 0; stage < stages(); ++stage) all.stages.push_back(stage_costs(stage, how, counts[stage]));
  return all;
}

double RecomputeCosts::makespan(Recompute how, const std::vector<int>& counts) const {
  return schedule::simulate(schedule_, costs(how, counts)).makespan_global;
}

}  // namespace gantry::planner
