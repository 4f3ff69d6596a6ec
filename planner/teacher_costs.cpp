// The costs of a teacher: its memory on the ranks of the student, and the time of its forward passes in a step.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/core/config.h"
#include "gantry/core/config/schedule_choice.h"
#include "gantry/core/error.h"
#include "gantry/planner/collectives.h"
#include "gantry/planner/costs.h"
#include "gantry/planner/operations.h"

namespace gantry::planner {
namespace {

constexpr double kMessageBytes = 64.0 * 1024 * 1024;  // the largest message of an exchange of logits

using Stages = std::vector<std::vector<int>>;

std::int64_t ceil_of(std::int64_t size, std::int64_t parts) { return (size + parts - 1) / parts; }

// The teacher as a workload of its own. It is neither sharded by ZeRO nor recomputed.
struct TeacherRun {
  Workload workload;
  Layout layout;
  Stages stages_of_rank;
  std::int64_t hidden = 0;  // size of the hidden states that it returns too; 0: none
  std::vector<int> layers() const { return layers_of(workload, layout, stages_of_rank); }
  int last_rank() const {  // the rank of the last stage
    int rank = 0, last = -1;
    for (std::size_t each = 0; each < stages_of_rank.size(); ++each)
      for (const int stage : stages_of_rank[each])
        if (stage > last) last = stage, rank = static_cast<int>(each);
    return rank;
  }
};

Layout own_layout(const TeacherPart::OwnLayout& own, const Workload& workload, const Layout& student) {
  Layout layout{.tensor = own.tensor,
                .pipeline = own.pipeline,
                .data = student.ranks() / (own.tensor * own.pipeline),
                .sequence_parallel = student.sequence_parallel && own.tensor > 1};
  const std::int64_t samples = ceil_of(workload.batch, std::max(1, layout.data));
  if (student.microbatches == 0) {
    layout.microbatch = static_cast<int>(std::min<std::int64_t>(student.microbatch, samples));
    return layout;
  }
  ScheduleOptions schedule;
  schedule.microbatches = own.microbatches;
  layout.microbatches = std::max(1, microbatch_count(schedule, own.pipeline, samples));
  layout.microbatch = static_cast<int>(ceil_of(samples, layout.microbatches));
  return layout;
}

TeacherRun teacher_run(const Workload& student, const Layout& layout, const Stages& stages_of_rank) {
  TeacherRun run{
      .workload = student, .layout = layout, .stages_of_rank = stages_of_rank, .hidden = student.teacher->hidden};
  run.workload.model = student.teacher->model;
  run.workload.trained = {};
  run.workload.teacher = nullptr;
  run.layout.zero = 0;
  run.layout.recompute = Recompute::kNone;
  if (const auto& own = student.teacher->own) {
    run.layout = own_layout(*own, student, layout);
    run.stages_of_rank.clear();
    for (int rank = 0; rank < own->pipeline; ++rank) run.stages_of_rank.push_back({rank});
  }
  return run;
}

// The logits and the hidden states of a rank of the last stage for `samples` samples.
double output_bytes(const Workload& workload, const Layout& layout, std::int64_t hidden, std::int64_t samples) {
  const double tokens = static_cast<double>(samples * workload.sequence) / layout.context;
  return value_bytes(workload.precision) * tokens *
         (largest_part(workload.model.vocabulary, layout.tensor) + as_double(hidden));
}

double outputs_of_step(const TeacherRun& run) {
  return output_bytes(run.workload, run.layout, run.hidden, ceil_of(run.workload.batch, run.layout.data));
}

// A forward without backward allocates about half of the bytes that a layer keeps for a backward, and the last stage
// the outputs of a microbatch.
double passing_bytes(const TeacherRun& run, int rank) {
  double most = 0;
  for (int layer = 0; layer < pipeline_layers(run.workload.model); ++layer)
    if (!repeats_layer(run.workload.model, layer))
      most = std::max(most, layer_operations(run.workload, layer, run.layout).kept / 2);
  const double outputs = output_bytes(run.workload, run.layout, run.hidden, run.layout.microbatch);
  return rank == run.last_rank() ? std::max(most, outputs) : most;
}

double value_bytes_of(const LayoutCosts& held, int rank, const Workload& workload) {
  const HeldParameters all = parameters_of(held, rank);
  return value_bytes(workload.precision) * (all.dense + all.experts);
}

// The part of the logits that is in messages at the same time.
double part_in_messages(const Workload& student, const TeacherRun& teacher, const Layout& layout) {
  const int ranks = std::max(layout.tensor, teacher.layout.tensor);
  const double row =
      value_bytes(student.precision) * as_double(student.sequence) * largest_part(student.model.vocabulary, ranks);
  const double rows = std::max(1.0, std::floor(kMessageBytes / row));
  return std::min(1.0, rows / as_double(ceil_of(student.batch, teacher.layout.data)));
}

// The ranks of a pipeline rank are neighbours in both meshes.
TeacherMemory memory_of_own_layout(const Workload& student, const Layout& layout, const TeacherRun& teacher,
                                   const LayoutCosts& held, int rank, bool has_logits) {
  const int others = teacher.layout.pipeline, first = rank * others / layout.pipeline,
            end = static_cast<int>(ceil_of(std::int64_t{rank + 1} * others, layout.pipeline));
  const double target =
      has_logits ? output_bytes(student, layout, teacher.hidden, ceil_of(student.batch, layout.data)) : 0;
  const double in_messages = part_in_messages(student, teacher, layout);
  TeacherMemory memory;
  double most = 0;
  for (int other = first; other < end; ++other) {
    const double computed = other == teacher.last_rank() ? outputs_of_step(teacher) : 0;
    const double weights = value_bytes_of(held, other, teacher.workload);
    memory.held = std::max(memory.held, weights + target);
    most = std::max(
        most, weights + target + computed + std::max(passing_bytes(teacher, other), in_messages * (computed + target)));
  }
  memory.passing = most - memory.held;
  return memory;
}

}  // namespace

std::vector<TeacherMemory> teacher_memory(const Workload& workload, const Layout& layout,
                                          const Stages& stages_of_rank) {
  std::vector<TeacherMemory> ranks;
  if (!workload.teacher) return ranks;
  const TeacherRun teacher = teacher_run(workload, layout, stages_of_rank);
  const LayoutCosts held = held_by_stages(teacher.workload, teacher.layout, teacher.stages_of_rank, teacher.layers());
  const TeacherRun student{.workload = {}, .layout = {}, .stages_of_rank = stages_of_rank};
  for (int rank = 0; rank < static_cast<int>(stages_of_rank.size()); ++rank) {
    const bool has_logits = rank == student.last_rank();
    if (workload.teacher->own) {
      ranks.push_back(memory_of_own_layout(workload, layout, teacher, held, rank, has_logits));
      continue;
    }
    const double outputs = has_logits ? outputs_of_step(teacher) : 0;
    ranks.push_back(
        {.held = value_bytes_of(held, rank, teacher.workload) + outputs, .passing = passing_bytes(teacher, rank)});
  }
  return ranks;
}

double forward_seconds(const LayoutCosts& costs) {
  double all = 0, longest = 0;
  for (const std::vector<int>& stages : costs.stages_of_rank) {
    double rank = 0;
    for (const int stage : stages) rank += costs.stages[stage].forward.sum();
    if (costs.vocabulary) rank += costs.vocabulary->embedding_forward.sum() + costs.vocabulary->head_forward.sum();
    all += rank;
    longest = std::max(longest, rank);
  }
  const auto ranks = static_cast<double>(costs.stages_of_rank.size());
  return costs.microbatches * longest + (all - longest) + (ranks - 1) * costs.hop;
}

double teacher_seconds(const Workload& workload, const Layout& layout, const Cluster& cluster,
                       const Stages& stages_of_rank) {
  const TeacherRun teacher = teacher_run(workload, layout, stages_of_rank);
  const double forward = forward_seconds(make_layout_costs(teacher.workload, teacher.layout, cluster,
                                                           make_cost_table(teacher.workload, teacher.layout, cluster),
                                                           teacher.stages_of_rank, teacher.layers()));
  if (!workload.teacher->own) return forward;
  const double moved = std::max(outputs_of_step(teacher),
                                output_bytes(workload, layout, teacher.hidden, ceil_of(workload.batch, layout.data)));
  return forward + exchange({layout.ranks(), 1}, moved, cluster);
}

std::optional<std::string> teacher_objection(const Workload& workload, const Layout& layout, const Cluster& cluster) {
  if (!workload.teacher) return std::nullopt;
  if (const auto& own = workload.teacher->own; own && layout.ranks() % (own->tensor * own->pipeline) != 0)
    return fmt::format("tensor {} * pipeline {} of the teacher does not divide {} ranks", own->tensor, own->pipeline,
                       layout.ranks());
  const TeacherRun teacher =
      teacher_run(workload, layout, schedule_plan(layout, layout.microbatches_of(workload.batch)).stages_of_rank);
  if (const auto refused = sizes_objection(teacher.workload, teacher.layout, cluster))
    return "the teacher: " + *refused;
  try {
    teacher.layers();
  } catch (const ConfigError& error) {
    return "the teacher: " + std::string(error.what());
  }
  return std::nullopt;
}

}  // namespace gantry::planner
