#include "gantry/planner/shared_vocabulary.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/models/described/model_flops.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/collectives.h"
#include "gantry/planner/operations.h"
#include "gantry/schedule/configured_schedule.h"

namespace gantry::planner {
namespace {

using schedule::ActionKind;

// Of words that are cut over so many ranks more.
Seconds cut(Seconds seconds, int ranks) {
  seconds.compute /= ranks;
  return seconds;
}

double columns_of(const Workload& workload) { return static_cast<double>(models::embedding_columns(workload.model)); }

// Of the rank that holds most.
double words_of(const Workload& workload, int ranks) {
  return static_cast<double>((workload.model.vocabulary + ranks - 1) / ranks);
}

// A table of the first or last stage, as rank_parameters.cpp counts it, is taken off.
HeldParameters without_table(HeldParameters held, const Workload& workload, const Layout& layout) {
  const double table = static_cast<double>(workload.model.vocabulary) / layout.tensor * columns_of(workload);
  held.dense = std::max(0.0, held.dense - table);
  held.trained_dense = std::max(0.0, held.trained_dense - table);
  return held;
}

}  // namespace

HeldParameters first_without_table(const ModelParameters& parameters, const Workload& workload, const Layout& layout) {
  return without_table(parameters.first, workload, layout);
}

HeldParameters last_without_head(const ModelParameters& parameters, const Workload& workload, const Layout& layout) {
  return without_table(parameters.last, workload, layout);
}

VocabularyPart shared_vocabulary(const Workload& workload, const Layout& layout, const Cluster& cluster,
                                 const CostTable& table) {
  const int ranks = layout.pipeline;
  const double value = value_bytes(workload.precision);
  const double tokens = static_cast<double>(workload.sequence) * layout.microbatch / layout.context;
  const double features = tokens * columns_of(workload);
  const double words = words_of(workload, ranks * layout.tensor);
  const double reduced = all_reduce(pipeline_group(layout), value * features, cluster);
  VocabularyPart part;
  part.embedding_forward = table.embedding.forward;
  part.embedding_forward.pipeline += reduced;
  part.embedding_backward = table.embedding.input_gradient;
  part.embedding_backward += table.embedding.weight_gradient;
  part.head_forward = cut(table.head.forward, ranks);
  part.head_backward = cut(table.head.weight_gradient, ranks);
  const Seconds input_gradient = cut(table.head.input_gradient, ranks);
  if (layout.vocabulary_algorithm == 2) {
    part.head_forward += input_gradient;
    part.head_combine.pipeline = reduced;
  } else {
    part.head_backward += input_gradient;
    part.head_backward.pipeline += reduced;
  }
  // Before the head and its logits; algorithm 2 also keeps the products that it begins with, in float32 or wider.
  part.kept = value * (features + tokens * words);
  if (layout.vocabulary_algorithm == 2) part.kept += std::max(4.0, value) * features;
  part.working = value * (tokens * words + features);
  part.parameters.add_dense((workload.model.tied ? 1 : 2) * words * columns_of(workload), /*is_trained=*/true);
  return part;
}

schedule::Schedule schedule_with_vocabulary(const Workload& workload, const Layout& layout, int microbatches) {
  ScheduleConfig config;
  config.name = layout.schedule;
  config.chunks = layout.chunks;
  config.vocabulary_algorithm = layout.vocabulary_algorithm;
  ScheduleSource source(config, layout.pipeline);
  source.share_vocabulary(models::layer_work_of(workload.model));
  return source.make(microbatches);
}

int logits_at_once(const schedule::Schedule& schedule, int rank) {
  int now = 0, most = 0;
  for (const schedule::Action& action : schedule.actions[rank]) {
    if (action.kind == ActionKind::kHeadForward) most = std::max(most, ++now);
    if (action.kind == ActionKind::kHeadBackward) --now;
  }
  return most;
}

std::optional<std::string> vocabulary_objection(const Workload& workload, const Layout& layout) {
  if (!layout.shares_vocabulary) return std::nullopt;
  if (layout.zero > 1) return fmt::format("vocabulary over the pipeline with zero {}, above 1", layout.zero);
  if (layout.expert > 1) return fmt::format("vocabulary over the pipeline with expert {}", layout.expert);
  if (!workload.trained.adapters.empty()) return "vocabulary over the pipeline with adapters";
  if (layout.schedule == "dualpipe_v") return "vocabulary over the pipeline with dualpipe_v, which overlaps actions";
  return std::nullopt;
}

}  // namespace gantry::planner
