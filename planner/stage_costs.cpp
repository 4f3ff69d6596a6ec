// Costs of stages, and of the vocabulary that all ranks of a pipeline share.
#include <algorithm>

#include "gantry/core/config.h"
#include "gantry/core/config/logit_limit.h"
#include "gantry/models/described/vision_modules.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/collectives.h"
#include "gantry/planner/costs.h"
#include "gantry/planner/operations.h"
#include "gantry/planner/tower.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/schedule/stages/layers_per_stage.h"

namespace gantry::planner {
namespace {

// Recomputation precedes the input gradient.
void add_layer(StageTimes& stage, const PartCosts& layer, Recompute recompute) {
  stage.forward += layer.forward;
  stage.input_gradient += layer.input_gradient;
  stage.weight_gradient += layer.weight_gradient;
  stage.kept_inputs += layer.kept - layer.kept_core;
  if (const auto* again = computed_again(layer, recompute)) stage.input_gradient += *again;
  stage.kept += kept_with(layer, recompute);
  stage.working = std::max(stage.working, made_again(layer, recompute) + layer.working);
}

// The time of a vocabulary that is sharded over `ranks` times as many ranks.
Seconds shard_words(Seconds seconds, int ranks) {
  seconds.compute /= ranks;
  return seconds;
}

double columns_of(const Workload& workload) { return static_cast<double>(models::embedding_columns(workload.model)); }

// Tokens of the vocabulary on the rank with the largest part.
double words_of(const Workload& workload, int ranks) { return largest_part(workload.model.vocabulary, ranks); }

// The parameters of the first or last stage (positions, norms, projections) without the embedding or the head.
HeldParameters without_table(HeldParameters held, const Workload& workload, const Layout& layout) {
  const double table = static_cast<double>(workload.model.vocabulary) / layout.tensor * columns_of(workload);
  held.dense = std::max(0.0, held.dense - table);
  held.trained_dense = std::max(0.0, held.trained_dense - table);
  held.trained_ends = std::max(0.0, held.trained_ends - table);
  return held;
}

// The parameters of first and last stage that are not in the shared vocabulary.
void add_rest_of_ends(std::vector<StageTimes>& stages, const CostTable& table, const Workload& workload,
                      const Layout& layout) {
  const HeldParameters first = without_table(table.parameters.first, workload, layout),
                       last = without_table(table.parameters.last, workload, layout);
  stages.front().parameters += first;
  stages.back().parameters += last;
}

void add_end(StageTimes& stage, const PartCosts& part, const HeldParameters& parameters) {
  add_layer(stage, part, Recompute::kNone);
  stage.parameters += parameters;
  stage.largest_end = std::max(stage.largest_end, parameters.dense);
}

// `embedding`: embedding_stage().
void add_ends(std::vector<StageTimes>& stages, const CostTable& table, int embedding) {
  const ModelParameters& parameters = table.parameters;
  StageTimes& first = stages.at(embedding);
  add_end(stages.front(), table.patches, parameters.patches);
  add_end(first, table.features, parameters.features);
  add_end(first, table.embedding, parameters.first);
  // The bytes that the head keeps are released before the backwards of the layers.
  stages.back().working -= std::min(stages.back().working, table.head.kept);
  add_end(stages.back(), table.head, parameters.last);
  if (parameters.tied > 0) first.tied_end += parameters.first.dense, stages.back().tied_end += parameters.last.dense;
  if (&first != &stages.back()) return;
  stages.back().parameters.remove_tied(table.parameters);
  stages.back().tied_end -= table.parameters.tied;
}

int stage_of_layer(int layer, const std::vector<int>& layers) {
  int stage = 0;
  for (int end = layers.front(); end <= layer;) end += layers.at(++stage);
  return stage;
}

// The embedding on the stage of multi-token prediction, unless this stage has it.
void add_table_of_mtp(std::vector<StageTimes>& stages, const Workload& workload, const Layout& layout,
                      const std::vector<int>& layers) {
  const models::DecoderSpec& model = workload.model;
  if (model.mtp_loss == 0) return;
  const int stage = stage_of_layer(models::tower_layers(model) + models::main_layers(model), layers);
  const bool has_tied_head = model.tied && stage + 1 == static_cast<int>(stages.size());
  if (stage == embedding_stage(model, layers) || has_tied_head) return;
  stages[stage].parameters.add_end(words_of(workload, layout.tensor) * columns_of(workload),
                                   workload.trained.trains(workload.model.names.tokens + ".weight"));
}

// All ranks of the pipeline reduce the result of the look-up, and the gradient of the head's input. Both times count
// for the passes that send these tensors.
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
  part.head_forward = shard_words(table.head.forward, ranks);
  part.head_backward = shard_words(table.head.weight_gradient, ranks);
  const Seconds input_gradient = shard_words(table.head.input_gradient, ranks);
  if (layout.vocabulary_algorithm == 2) {
    part.head_forward += input_gradient;
    part.head_combine.pipeline = reduced;
  } else {
    part.head_backward += input_gradient;
    part.head_backward.pipeline += reduced;
  }
  // The input of the head, and the logits unless they are computed again. Algorithm 2 also keeps the partial input
  // gradient, in float32 or wider.
  const double wide = std::max(4.0, value), tiles = 2 * as_double(kLogitLimit);
  const bool is_tiled = has_tiled_logits(workload, layout);
  part.kept = value * features + (is_tiled ? 0 : value * tokens * words);
  if (layout.vocabulary_algorithm == 2) part.kept += wide * features;
  part.working = is_tiled ? tiles + wide * features : value * (tokens * words + features);
  part.parameters.add_end((workload.model.tied ? 1 : 2) * words * columns_of(workload), /*is_trained=*/true);
  return part;
}

// The numbers that a rank sends for a microbatch to a stage whose first layer is layer `next` of the pipeline. Before
// the decoder these are patches, which no other tensor rank shares.
double numbers_sent(const Workload& workload, const Layout& layout, int next) {
  const int tower = models::tower_layers(workload.model);
  if (workload.model.vision && next <= tower) return patch_numbers(workload, layout);
  const int token_parts = layout.sequence_parallel || workload.program.scatters_messages ? layout.tensor : 1;
  const double tokens = static_cast<double>(workload.sequence) * layout.microbatch / layout.context / token_parts;
  return tokens * columns_passed(workload.model, next - tower, layout.tensor, token_parts);
}

}  // namespace

LayoutCosts held_by_stages(const Workload& workload, const Layout& layout,
                           const std::vector<std::vector<int>>& stages_of_rank, const std::vector<int>& layers) {
  const ModelParameters parameters = held_parameters(workload.model, layout.tensor, layout.expert, workload.trained);
  LayoutCosts held;
  held.stages_of_rank = stages_of_rank;
  auto next = parameters.layers.begin();
  for (const int count : layers) {
    StageTimes& stage = held.stages.emplace_back();
    for (int i = 0; i < count; ++i) stage.parameters += *next++;
  }
  StageTimes& first = held.stages.at(embedding_stage(workload.model, layers));
  held.stages.front().parameters += parameters.patches;
  first.parameters += parameters.features;
  first.parameters += parameters.first;
  held.stages.back().parameters += parameters.last;
  if (&first == &held.stages.back()) first.parameters.remove_tied(parameters);
  return held;
}

int embedding_stage(const models::DecoderSpec& model, const std::vector<int>& layers) {
  return model.vision ? stage_of_layer(models::tower_layers(model), layers) : 0;
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
  if (layout.shares_vocabulary) work.first = work.last = 0;  // the work of all ranks
  ScheduleOptions config;
  if (layout.balanced) config.layers = std::string("balanced");
  if (!layout.layers.empty()) config.layers = layout.layers;
  std::vector<int> layers = layers_per_stage(config, work, rank_of_stage);
  layer_ranges(layers, pipeline_layers(workload.model), static_cast<int>(rank_of_stage.size()));  // throws
  return layers;
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
    const int embedding = embedding_stage(workload.model, layers);
    add_ends(costs.stages, table, embedding);
    costs.has_two_tables = (workload.model.tied && embedding + 1 < static_cast<int>(layers.size())) ||
                           (workload.model.mtp_loss > 0 && layers.size() > 1);
  }
  add_table_of_mtp(costs.stages, workload, layout, layers);
  costs.teacher = teacher_memory(workload, layout, stages_of_rank);
  double sent = 0;
  int begin = 0;
  for (std::size_t stage = 0; stage + 1 < layers.size(); ++stage) {  // the largest message
    begin += layers[stage];
    sent = std::max(sent, numbers_sent(workload, layout, begin));
  }
  costs.hop = message(pipeline_group(layout), value_bytes(workload.precision) * sent, cluster);
  if (workload.teacher) costs.seconds_ahead = teacher_seconds(workload, layout, cluster, stages_of_rank);
  if (workload.runs_ahead) costs.seconds_ahead = forward_seconds(costs);
  if (!workload.program.blocking_messages) return costs;
  for (std::size_t stage = 0; stage < costs.stages.size(); ++stage) {  // sender and receiver wait equally long
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

}  // namespace gantry::planner
