// The state of one boosted model over its steps.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gantry/optimizers/parameter_shards.h"
#include "gantry/pipeline/executor.h"
#include "gantry/plugins/accumulation.h"
#include "gantry/plugins/boosted.h"
#include "gantry/plugins/gathered_stages.h"
#include "gantry/plugins/model_routers.h"
#include "gantry/plugins/optimizer_state.h"
#include "gantry/plugins/plugin_context.h"
#include "gantry/plugins/sequence_parts.h"
#include "gantry/plugins/shared_vocabulary.h"
#include "gantry/plugins/stage_graphs.h"
#include "gantry/plugins/step_end.h"
#include "gantry/plugins/step_offload.h"
#include "gantry/schedule/parameter_actions.h"

namespace gantry {

// The parts of one boosted model. The handles that the program holds own it.
struct ModelState {
  std::shared_ptr<PluginContext> plugin;  // destroyed last
  std::shared_ptr<BoostedModel> model;
  Loop loop = Loop::kPipeline;
  SplitOutputs split;
  std::vector<std::unique_ptr<ProcessGroup>> shared_groups;
  std::shared_ptr<BoostedOptimizer> optimizer;  // null without an optimizer
  std::unique_ptr<Accumulation> accumulation;   // null without an optimizer
  std::unique_ptr<OptimizerState> state;
  std::optional<ScheduleSource> schedules;
  // Key: number of microbatches, forward_only, and the period of gathering sharded parameters.
  std::map<std::tuple<int, bool, std::optional<schedule::Gather>>, std::unique_ptr<schedule::Executor>> executors;
  bool compares_samples = false;   // the loss compares all samples of a step
  bool inputs_compared = false;    // done at the first step
  bool documents_checked = false;  // done at the first training step
  bool outputs_compared = false;   // done at the first step, on the ranks of the last stage
  std::shared_ptr<int> no_sync_guards = std::make_shared<int>(0);
  std::vector<std::string> loss_names;  // names of the losses that stages add, on any rank
  // The type of the model's parameters, if they have one. Real numbers of a batch are converted to it.
  std::optional<torch::ScalarType> real_type;
  std::optional<SequenceParts> parts;  // set if ranks share sequences
  std::optional<ModelRouters> routers;
  std::unique_ptr<ParameterShards> shards;       // if parameters are sharded over replicas
  std::shared_ptr<GatheredStages> gathered;      // null unless `shards` is set
  std::unique_ptr<StepOffload> offload;          // null unless data is offloaded to the host
  std::unique_ptr<StageGraphs> graphs;           // null unless CUDA graphs are captured
  std::unique_ptr<SharedVocabulary> vocabulary;  // null unless the ranks of a pipeline share embedding and head

  // The executor of the model's schedule for this number of microbatches, created at its first use.
  schedule::Executor& executor_for(int microbatches, bool forward_only, std::optional<schedule::Gather> gather);

  // For a model with an optimizer: the numbers of this rank for agree_on_end(). `aborted`: it has aborted the
  // step.
  StepEnd end_of_step(bool aborted);
  // Reduces the gradients of all calls since the last optimizer step. `end`: numbers of all ranks. Collective
  // over the world.
  void finish_gradients(const StepEnd& end);
  // Compares the replicas of parameters and gradients; _when_due: if the options name this step. Collective over the
  // world.
  void audit();
  void audit_when_due();
};

}  // namespace gantry
