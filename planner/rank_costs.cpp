// The costs of a rank in a step: time of its passes and of work that is done once, and memory.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "gantry/core/sharding/zero_level.h"
#include "gantry/planner/collectives.h"
#include "gantry/planner/costs.h"
#include "gantry/planner/operations.h"

namespace gantry::planner {
namespace {

constexpr double kBucketBytes = 25.0 * 1024 * 1024;
constexpr int kStagesInWindow = 2;  // gathered stages of a rank: the current one and the next

// "step", "window" or "microbatch"; the runtime resolves auto in the same way.
std::string gather_of(const Layout& layout) {
  if (layout.gather != "auto") return layout.gather;
  return layout.pipeline == 1 ? "microbatch" : "window";
}

// How often a step gathers a rank's parameters. Layers that are gathered around each use are gathered in each forward
// and in each backward.
double gathers_of_step(const Layout& layout, int microbatches, int stages_of_rank) {
  const std::string gather = gather_of(layout);
  const bool stays = gather == "step" || (gather == "window" && stages_of_rank <= kStagesInWindow);
  return stays ? 1 : 2.0 * microbatches;
}

// The unsharded elements of a rank at the same time: of parameters, and of gradients, which exist from a stage's first
// backward to its last.
struct GatheredElements {
  double values = 0, gradients = 0;
  double in_place_of_activations = 0;  // those of `gradients` that are in flight after a layer released its activations
};
GatheredElements gathered_elements(const Layout& layout, const LayoutCosts& costs, int rank) {
  std::vector<double> stages;
  double all = 0, largest = 0, end = 0, tied = 0;
  for (const int stage : costs.stages_of_rank[rank]) {
    const StageTimes& each = costs.stages[stage];
    stages.push_back(each.parameters.dense + each.parameters.experts);
    all += stages.back();
    largest = std::max(largest, each.largest_layer);
    end = std::max(end, each.largest_end);
    tied += each.tied_end;
  }
  const double two_units = std::min(all, largest + std::max(largest, end));
  // Embedding and head accumulate into the same gradient, which is allocated in between.
  const double two_gradients = tied > 0 ? std::min(all, 2 * largest + tied) : two_units;
  const std::string gather = gather_of(layout);
  if (gather == "microbatch" && costs.microbatches == 1) return {two_units, two_gradients, largest};
  if (gather == "microbatch") return {two_units, all};
  if (gather == "step") return {all, all};
  std::ranges::sort(stages, std::greater{});
  double window = 0;
  for (std::size_t i = 0; i < stages.size() && i < kStagesInWindow; ++i) window += stages[i];
  return {window, all};
}

// Bytes of unsharded gradients that are allocated while activations are released: those of a rank's first backward, if
// no forward follows it.
double in_place_of_activations(const GatheredElements& gathered, const LayoutCosts& costs, int rank, double activations,
                               const Program& program, double trained) {
  const double bytes = program.gradient_bytes * trained;
  if (gathered.in_place_of_activations > 0) return bytes * gathered.in_place_of_activations;
  double kept = 0;  // by one microbatch
  for (const int stage : costs.stages_of_rank[rank]) kept += costs.stages[stage].kept;
  constexpr double kTolerance = 1e-9;
  const bool all_are_in_flight = activations >= (1 - kTolerance) * kept * costs.microbatches;
  return all_are_in_flight ? std::min(bytes * gathered.gradients, kept) : 0;
}

}  // namespace

HeldParameters parameters_of(const LayoutCosts& costs, int rank) {
  HeldParameters held;
  for (const int stage : costs.stages_of_rank[rank]) held += costs.stages[stage].parameters;
  if (costs.vocabulary) held += costs.vocabulary->parameters;
  return held;
}

Seconds stage_work_of(const LayoutCosts& costs, int rank) {
  Seconds once;
  for (const int stage : costs.stages_of_rank[rank]) {
    once += costs.stages[stage].forward;
    once += costs.stages[stage].input_gradient;
    once += costs.stages[stage].weight_gradient;
  }
  return once.times(costs.microbatches);
}

Seconds work_of(const LayoutCosts& costs, int rank) {
  Seconds work = stage_work_of(costs, rank);
  if (costs.vocabulary) work += costs.vocabulary->seconds().times(costs.microbatches);
  return work;
}

// Reductions overlap with the last backward, and slow it down.
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
  // ZeRO 3 reduces gradients once per step.
  const auto shard_sweep = [&](double elements, double trained, const Group& shards, const Group& replicas) {
    const double gradients = program.gradient_bytes * trained;
    const auto stages = static_cast<int>(costs.stages_of_rank[rank].size());
    return gathers_of_step(layout, costs.microbatches, stages) * half_reduce(shards, value * elements, cluster) +
           half_reduce(shards, gradients, cluster) + all_reduce(replicas, gradients / shards.size, cluster);
  };
  OnceSeconds once;
  const double reduced =
      zero.parameters
          ? shard_sweep(held.dense, held.trained_dense, shard_group(layout), shard_replicas_group(layout)) +
                shard_sweep(held.experts, held.trained_experts, expert_shard_group(layout),
                            expert_shard_replicas_group(layout))
          : sweep(held.trained_dense, batch_group(layout)) + sweep(held.trained_experts, expert_batch_group(layout));
  double extra = 0;
  for (const int stage : costs.stages_of_rank[rank]) extra += costs.stages[stage].backward();
  if (zero.gradients) extra *= costs.microbatches;
  const double hidden = program.overlaps_gradients ? std::min(reduced, extra) : 0;
  once.data = reduced - hidden + (cluster.overlap_slowdown - 1) * hidden;
  const bool trains_table = workload.trained.trains(workload.model.names.tokens + ".weight");
  if (costs.has_two_tables && trains_table) {
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
  once.other = cluster.step_seconds + costs.seconds_ahead;
  return once;
}

// Bytes of the rows or matrices of sharded parameters that a rank steps in the precision of the model. In 16 bits they
// are master weights.
double bytes_of_units(const Workload& workload, const Layout& layout, const HeldParameters& held) {
  const ZeroLevel& zero = zero_level(layout.zero);
  const double value = value_bytes(workload.precision);
  const bool is_matrix = workload.program.unit == SteppedUnit::kMatrix;
  if (workload.program.unit == SteppedUnit::kElement || value < workload.program.gradient_bytes) return 0;
  const double replicas = zero.parameters ? shard_group(layout).size : zero.states ? batch_group(layout).size : 1;
  const bool shards_units = replicas > 1 && (is_matrix || !zero.parameters);
  if (!shards_units && !is_matrix) return value * held.trained_by_input / replicas;
  if (!shards_units && layout.tensor == 1) return 0;
  const double elements = held.trained_dense - (workload.program.bytes_of_ends > 0 ? held.trained_ends : 0);
  return value * elements / replicas;
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
  memory.optimizer = of_trained(program.optimizer_bytes, zero.states) + bytes_of_units(workload, layout, held) +
                     bytes(program.bytes_of_ends, held.trained_ends, 0, zero.states);
  memory.activations = activations;
  for (const int stage : costs.stages_of_rank[rank])
    memory.working = std::max(memory.working, costs.stages[stage].working);
  if (costs.vocabulary) memory.working = std::max(memory.working, costs.vocabulary->working);
  if (zero.parameters && std::max(replicas, expert_replicas) > 1) {
    const GatheredElements gathered = gathered_elements(layout, costs, rank);
    const double trained = held.dense > 0 ? held.trained_dense / held.dense : 0;
    memory.working +=
        value_bytes(workload.precision) * gathered.values + program.gradient_bytes * gathered.gradients * trained;
    // Parameters with master weights are only allocated when they are gathered.
    if (value_bytes(workload.precision) < program.gradient_bytes)
      memory.parameters -= of_trained(value_bytes(workload.precision), true);
    // Reduced gradients, and gradients before their reduction, are allocated while activations are released.
    const double allocated =
        memory.gradients + in_place_of_activations(gathered, costs, rank, activations, program, trained);
    memory.activations = std::max(0.0, memory.activations - allocated);
  } else if (zero.gradients && replicas > 1) {
    memory.working += std::min(2 * kBucketBytes, program.gradient_bytes * (held.trained_dense + held.trained_experts));
  }
  if (!costs.teacher.empty()) {
    memory.teacher = costs.teacher[rank].held;
    memory.working = std::max(memory.working, costs.teacher[rank].passing - memory.activations);
  }
  return memory;
}

}  // namespace gantry::planner
