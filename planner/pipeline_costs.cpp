// The passes of a pipeline: their schedule, and its simulation.
#include <algorithm>

#include "gantry/core/config.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/costs.h"
#include "gantry/schedule/configured_schedule.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/simulate_valid.h"

namespace gantry::planner {
namespace {

schedule::Costs schedule_costs(const LayoutCosts& costs, bool blocking) {
  schedule::Costs all;
  const double hop = blocking ? 0 : costs.hop;  // blocking messages are part of the stages' times
  for (const StageTimes& stage : costs.stages)
    all.stages.push_back({.forward = stage.forward.sum(),
                          .input_gradient = stage.input_gradient.sum(),
                          .weight_gradient = stage.weight_gradient.sum(),
                          .send_forward = hop,
                          .send_backward = hop,
                          .activation = stage.kept,
                          .weight_input = stage.kept_inputs});
  all.hop = hop;
  if (const auto& shared = costs.vocabulary)
    all.vocabulary = {.embedding_forward = shared->embedding_forward.sum(),
                      .embedding_backward = shared->embedding_backward.sum(),
                      .head_forward = shared->head_forward.sum(),
                      .head_backward = shared->head_backward.sum(),
                      .head_combine = shared->head_combine.sum()};
  return all;
}

schedule::Schedule make_schedule(const Workload& workload, const Layout& layout, const LayoutCosts& costs) {
  if (costs.vocabulary) return schedule_with_vocabulary(workload, layout, costs.microbatches);
  schedule::GeneratorOptions options;
  double forward = 0, input = 0, weight = 0;
  for (const StageTimes& stage : costs.stages) {
    forward += stage.forward.sum();
    input += stage.input_gradient.sum();
    weight += stage.weight_gradient.sum();
  }
  const auto ranks = static_cast<double>(costs.stages_of_rank.size());
  options.forward = forward / ranks;
  options.input_gradient = input / ranks;
  options.weight_gradient = weight / ranks;
  options.hop = costs.hop;
  return schedule::generate(layout.schedule, layout.pipeline, costs.microbatches,
                            layout.pipeline == 1 ? 0 : layout.chunks, options);
}

// The largest number of microbatches of which a rank keeps logits at the same time.
int logits_at_once(const schedule::Schedule& schedule, int rank) {
  int now = 0, most = 0;
  for (const schedule::Action& action : schedule.actions[rank]) {
    if (action.kind == schedule::ActionKind::kHeadForward) most = std::max(most, ++now);
    if (action.kind == schedule::ActionKind::kHeadBackward) --now;
  }
  return most;
}

}  // namespace

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

schedule::Schedule schedule_with_vocabulary(const Workload& workload, const Layout& layout, int microbatches) {
  ScheduleOptions config;
  config.name = layout.schedule;
  config.chunks = layout.chunks;
  config.vocabulary_algorithm = layout.vocabulary_algorithm;
  ScheduleSource source(config, layout.pipeline);
  source.share_vocabulary(models::layer_work_of(workload.model));
  return source.make(microbatches);
}

PipelineRun run_pipeline(const Workload& workload, const Layout& layout, const LayoutCosts& costs,
                         const schedule::Schedule* known) {
  const schedule::Schedule own = known ? schedule::Schedule() : make_schedule(workload, layout, costs);
  const schedule::Schedule& made = known ? *known : own;
  const schedule::Costs times = schedule_costs(costs, workload.program.blocking_messages);
  const schedule::Simulation run = known ? schedule::simulate_valid(made, times) : schedule::simulate(made, times);
  PipelineRun result{.seconds = run.makespan_global, .bubble = run.bubble_rate, .activations = run.peak_memory};
  for (int rank = 0; costs.vocabulary && rank < made.ranks(); ++rank)
    result.activations[rank] += logits_at_once(made, rank) * costs.vocabulary->kept;
  return result;
}

}  // namespace gantry::planner
