#include "gantry/planner/estimate.h"

#include <algorithm>

#include "gantry/core/zero_level.h"
#include "gantry/models/described/model_flops.h"
#include "gantry/planner/collectives.h"
#include "gantry/planner/layout_costs.h"
#include "gantry/planner/operations.h"
#include "gantry/planner/shard_parameters.h"
#include "gantry/planner/shared_vocabulary.h"
#include "gantry/schedule/schedule.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/simulate_valid.h"

namespace gantry::planner {
namespace {

constexpr double kBucketBytes = 25.0 * 1024 * 1024;
constexpr double kRounding = 1e-12;  // of a step: so much is no wait

HeldParameters parameters_of(const LayoutCosts& costs, int rank) {
  HeldParameters held;
  for (const int stage : costs.stages_of_rank[rank]) held += costs.stages[stage].parameters;
  if (costs.vocabulary) held += costs.vocabulary->parameters;
  return held;
}

// Of a rank's stages, all microbatches.
Seconds stage_work_of(const LayoutCosts& costs, int rank) {
  Seconds once;
  for (const int stage : costs.stages_of_rank[rank]) {
    once += costs.stages[stage].forward;
    once += costs.stages[stage].input_gradient;
    once += costs.stages[stage].weight_gradient;
  }
  return once.times(costs.microbatches);
}

// With what it does for all stages.
Seconds work_of(const LayoutCosts& costs, int rank) {
  Seconds work = stage_work_of(costs, rank);
  if (costs.vocabulary) work += costs.vocabulary->seconds().times(costs.microbatches);
  return work;
}

schedule::Costs schedule_costs(const LayoutCosts& costs, bool blocking) {
  schedule::Costs all;
  const double hop = blocking ? 0 : costs.hop;  // where ranks wait for messages, these are among their times
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

// Bytes of whole gradients that come as activations go: those of a rank's first backward, where no forward follows it.
double in_place_of_activations(const WholeElements& whole, const LayoutCosts& costs, int rank, double activations,
                               const Program& program, double trained) {
  const double bytes = program.gradient_bytes * trained;
  if (whole.in_place_of_activations > 0) return bytes * whole.in_place_of_activations;
  double kept = 0;  // by a microbatch
  for (const int stage : costs.stages_of_rank[rank]) kept += costs.stages[stage].kept;
  constexpr double kRounding = 1e-9;
  const bool all_are_in_flight = activations >= (1 - kRounding) * kept * costs.microbatches;
  return all_are_in_flight ? std::min(bytes * whole.gradients, kept) : 0;
}

}  // namespace

Seconds& Seconds::operator+=(const Seconds& more) {
  compute += more.compute;
  tensor += more.tensor;
  context += more.context;
  expert += more.expert;
  pipeline += more.pipeline;
  data += more.data;
  optimizer += more.optimizer;
  return *this;
}

Seconds Seconds::times(double count) const {
  return {compute * count,  tensor * count, context * count,  expert * count,
          pipeline * count, data * count,   optimizer * count};
}

double Estimate::most_memory() const {
  double most = 0;
  for (const Memory& rank : memory) most = std::max(most, rank.sum());
  return most;
}

// Reductions that run beside the last backward are hidden as long as that takes, and slow it down.
OnceSeconds once_seconds(const Workload& workload, const Layout& layout, const Cluster& cluster,
                         const LayoutCosts& costs, int rank) {
  const Program& program = workload.program;
  const ZeroLevel& zero = zero_level(layout.zero);
  const HeldParameters held = parameters_of(costs, rank);
  const double value = value_bytes(workload.precision);
  const auto sweep = [&](double elements, const Group& group) {
    const double gradients = program.gradient_bytes * elements, values = value * elements;
    if (!zero.states) return all_reduce(group, gradients, cluster);
    const double times = zero.gradients ? costs.microbatches : 1;
    return times * half_reduce(group, gradients, cluster) + half_reduce(group, values, cluster);
  };
  // Gradients are summed once a step.
  const auto cut_sweep = [&](double elements, double trained, const Group& shards, const Group& replicas) {
    const double gradients = program.gradient_bytes * trained;
    const auto stages = static_cast<int>(costs.stages_of_rank[rank].size());
    return gathers_of_step(layout, costs.microbatches, stages) * half_reduce(shards, value * elements, cluster) +
           half_reduce(shards, gradients, cluster) + all_reduce(replicas, gradients / shards.size, cluster);
  };
  OnceSeconds once;
  const double reduced =
      zero.parameters
          ? cut_sweep(held.dense, held.trained_dense, shard_group(layout), shard_replicas_group(layout)) +
                cut_sweep(held.experts, held.trained_experts, expert_shard_group(layout),
                          expert_shard_replicas_group(layout))
          : sweep(held.trained_dense, batch_group(layout)) + sweep(held.trained_experts, expert_batch_group(layout));
  double extra = 0;
  for (const int stage : costs.stages_of_rank[rank]) extra += costs.stages[stage].backward();
  if (zero.gradients) extra *= costs.microbatches;
  const double hidden = program.overlaps_gradients ? std::min(reduced, extra) : 0;
  once.data = reduced - hidden + (cluster.overlap_slowdown - 1) * hidden;
  const bool trains_table = workload.trained.trains(workload.model.names.tokens + ".weight");
  if (workload.model.tied && trains_table && layout.pipeline > 1 && !costs.vocabulary) {
    const double table = program.gradient_bytes * static_cast<double>(workload.model.vocabulary) *
                         static_cast<double>(models::embedding_columns(workload.model)) / layout.tensor;
    once.data += all_reduce({2, pipeline_group(layout).stride}, table, cluster);
  }
  const double replicas = zero.parameters ? shard_group(layout).size : zero.states ? batch_group(layout).size : 1;
  const double expert_replicas = zero.parameters ? expert_shard_group(layout).size
                                 : zero.states   ? expert_batch_group(layout).size
                                                 : 1;
  const double stepped = held.trained_dense / replicas + held.trained_experts / expert_replicas;
  const double moved = (2 * program.gradient_bytes + 2 * program.optimizer_bytes + value) * stepped;
  const Device& device = cluster.device;
  const double share = device.optimizer_efficiency > 0 ? device.optimizer_efficiency : device.memory_efficiency;
  once.optimizer = moved / (device.memory_bytes_per_second * share);
  once.other = cluster.step_seconds;
  return once;
}

Memory rank_memory(const Workload& workload, const Layout& layout, const LayoutCosts& costs, int rank,
                   double activations) {
  const Program& program = workload.program;
  const HeldParameters held = parameters_of(costs, rank);
  const ZeroLevel& zero = zero_level(layout.zero);
  const double replicas = (zero.parameters ? shard_group(layout) : batch_group(layout)).size;
  const double expert_replicas = (zero.parameters ? expert_shard_group(layout) : expert_batch_group(layout)).size;
  const auto bytes = [&](double each, double dense, double experts, bool is_partitioned) {
    return is_partitioned ? each * (dense / replicas + experts / expert_replicas) : each * (dense + experts);
  };
  const auto of_trained = [&](double each, bool is_partitioned) {
    return bytes(each, held.trained_dense, held.trained_experts, is_partitioned);
  };
  Memory memory;
  memory.parameters = bytes(value_bytes(workload.precision), held.dense, held.experts, zero.parameters);
  memory.gradients = of_trained(program.gradient_bytes, zero.gradients);
  memory.optimizer = of_trained(program.optimizer_bytes, zero.states);
  memory.activations = activations;
  for (const int stage : costs.stages_of_rank[rank])
    memory.working = std::max(memory.working, costs.stages[stage].working);
  if (costs.vocabulary) memory.working = std::max(memory.working, costs.vocabulary->working);
  if (zero.parameters && std::max(replicas, expert_replicas) > 1) {
    const WholeElements whole = whole_elements(layout, costs, rank);
    const double trained = held.dense > 0 ? held.trained_dense / held.dense : 0;
    memory.working +=
        value_bytes(workload.precision) * whole.values + program.gradient_bytes * whole.gradients * trained;
    // Rows that have masters take memory only as they are gathered.
    if (value_bytes(workload.precision) < program.gradient_bytes)
      memory.parameters -= of_trained(value_bytes(workload.precision), true);
    // Sums, and gradients on their way to them, take memory as activations give it back.
    const double coming = memory.gradients + in_place_of_activations(whole, costs, rank, activations, program, trained);
    memory.activations = std::max(0.0, memory.activations - coming);
  } else if (zero.gradients && replicas > 1) {
    memory.working += std::min(2 * kBucketBytes, program.gradient_bytes * (held.trained_dense + held.trained_experts));
  }
  return memory;
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

Estimate estimate_with(const Workload& workload, const Layout& layout, const Cluster& cluster, const LayoutCosts& costs,
                       const PipelineRun& run) {
  Estimate result;
  int longest = 0;
  double most = -1;
  for (int rank = 0; rank < static_cast<int>(run.activations.size()); ++rank) {
    const OnceSeconds once = once_seconds(workload, layout, cluster, costs, rank);
    const double work = work_of(costs, rank).sum() + once.data + once.optimizer;
    if (work > most) most = work, longest = rank;
    result.memory.push_back(rank_memory(workload, layout, costs, rank, run.activations[rank]));
  }
  const OnceSeconds once = once_seconds(workload, layout, cluster, costs, longest);
  result.seconds = work_of(costs, longest);
  const double waited = run.seconds - result.seconds.sum();
  if (waited > kRounding * run.seconds) result.seconds.pipeline += waited;
  result.seconds.data = once.data;
  result.seconds.optimizer = once.optimizer + once.other;
  result.step_seconds = result.seconds.sum();
  const auto samples = static_cast<double>(workload.batch), tokens = samples * static_cast<double>(workload.sequence);
  result.tokens_per_second = tokens / result.step_seconds;
  const double peak = cluster.device.matrix_flops.at(workload.precision) * layout.ranks();
  result.mfu = models::model_flops(workload.model, workload.batch, workload.sequence) / result.step_seconds / peak;
  result.bubble = run.bubble;
  result.fits = result.most_memory() <= cluster.device.memory_bytes;
  return result;
}

namespace {

// Of all stages before each: the time until a first microbatch comes through them, and, where backwards are whole, that
// of a last one's way back.
std::vector<double> waiting_before(const LayoutCosts& costs, bool splits_backward, double hop) {
  std::vector<int> rank_of_stage(costs.stages.size());
  for (std::size_t rank = 0; rank < costs.stages_of_rank.size(); ++rank)
    for (const int stage : costs.stages_of_rank[rank]) rank_of_stage[stage] = static_cast<int>(rank);
  std::vector<double> waiting(costs.stages.size(), 0);
  for (std::size_t stage = 1; stage < waiting.size(); ++stage) {
    const StageTimes& before = costs.stages[stage - 1];
    const double passed = rank_of_stage[stage] == rank_of_stage[stage - 1] ? 0 : hop;
    waiting[stage] = waiting[stage - 1] + before.forward.sum() + passed;
    if (!splits_backward) waiting[stage] += before.backward() + passed;
  }
  return waiting;
}

}  // namespace

// Heads are computed once a microbatch has come through all stages, and what a backward waits for before that: such
// passes of the vocabulary are neither in a rank's wait at the start nor, those of the second kind, in that at the end.
double least_pipeline_seconds(const Workload& workload, const LayoutCosts& costs, bool splits_backward) {
  const double hop = workload.program.blocking_messages ? 0 : costs.hop;
  const std::vector<double> waiting = waiting_before(costs, splits_backward, hop),
                            until_first = waiting_before(costs, /*splits_backward=*/true, hop);
  double heads = 0, before_backward = 0;
  if (const auto& shared = costs.vocabulary) {
    before_backward = costs.microbatches * (shared->head_forward.sum() + shared->head_combine.sum());
    heads = before_backward + costs.microbatches * shared->head_backward.sum();
  }
  double least = 0;
  for (std::size_t rank = 0; rank < costs.stages_of_rank.size(); ++rank) {
    const int index = static_cast<int>(rank), first = std::ranges::min(costs.stages_of_rank[rank]);
    const double staged = stage_work_of(costs, index).sum();
    least = std::max({least, work_of(costs, index).sum(), staged + waiting[first] + before_backward,
                      staged + until_first[first] + heads});
  }
  return least;
}

double least_seconds_with(const Workload& workload, const Layout& layout, const Cluster& cluster,
                          const LayoutCosts& costs, bool splits_backward) {
  double once = 0, most = -1;
  for (int rank = 0; rank < static_cast<int>(costs.stages_of_rank.size()); ++rank) {
    const OnceSeconds of_rank = once_seconds(workload, layout, cluster, costs, rank);
    const double work = work_of(costs, rank).sum() + of_rank.data + of_rank.optimizer;
    if (work > most) most = work, once = of_rank.data + of_rank.optimizer + of_rank.other;
  }
  return least_pipeline_seconds(workload, costs, splits_backward) + once;
}

double least_memory_with(const Workload& workload, const Layout& layout, const LayoutCosts& costs) {
  double most = 0;
  for (std::size_t rank = 0; rank < costs.stages_of_rank.size(); ++rank) {
    double kept = 0;
    for (const int stage : costs.stages_of_rank[rank]) kept = std::max(kept, costs.stages[stage].kept);
    if (costs.vocabulary) kept = std::max(kept, costs.vocabulary->kept);
    most = std::max(most, rank_memory(workload, layout, costs, static_cast<int>(rank), kept).sum());
  }
  return most;
}

}  // namespace gantry::planner
