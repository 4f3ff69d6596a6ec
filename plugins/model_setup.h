// The steps of boosting a model, one function each.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/boosted.h"
#include "gantry/plugins/criterion.h"
#include "gantry/plugins/parallel_options.h"
#include "gantry/policies/sharder.h"

namespace gantry {

// Throws UsageError if the optimizer has already stepped, because its state has the shapes of full
// parameters.
void refuse_used_optimizer(torch::optim::Optimizer* optimizer);

// Broadcasts the values of rank 0, because each rank that built the model with values used its own random
// generator. Deferred parameters are skipped. Collective over the world.
void synchronise_initial_weights(torch::nn::Module& model, const ProcessGroupMesh& mesh);

// Layers per stage according to schedule.layers, by the policy's ModelSplit::work if they are balanced. Empty
// for the policy's own rule. Throws ConfigError if `work` has another number of layers. `shares_vocabulary`:
// embedding and head do not belong to stages.
std::vector<int> chosen_layers(const ScheduleOptions& config, const Policy& policy, const torch::nn::Module& model,
                               const PipelineStageManager& stages, bool shares_vocabulary = false);

// A plain backward() has to reduce partial gradients over tp itself. A boosted step reduces them once.
GradientSum gradient_sum_of(Loop loop);

// Keeps the policy's split outputs sharded if the criterion supports this; otherwise makes their layers
// gather them.
SplitOutputs bind_split_outputs(torch::nn::Module& model, const std::vector<SplitOutput>& outputs, bool keep_split,
                                ProcessGroup& tensor_group);

// Throws ConfigError if the program has built the model in another precision than the configuration states.
// `held`: the type of the model's parameters, if they have the same one.
void refuse_other_precision(const PrecisionOptions& precision, const std::optional<torch::ScalarType>& held);

// True if the model trains adapters, on any stage.
bool has_adapters(const StageModule& module);
bool has_adapters(const torch::nn::Module& model);

// The groups over which gradients of shared parameters are reduced: one for each distinct set of pipeline
// ranks, in sorted order. Collective over the world.
std::vector<SharedGradient> make_shared_groups(const StageModule& module, const PipelineStageManager& stages,
                                               const ProcessGroupMesh& mesh,
                                               std::vector<std::unique_ptr<ProcessGroup>>& groups);

// Removes the parameters that this rank does not hold from the optimizer's groups. Throws ConfigError if the
// optimizer has trainable parameters of another model.
void keep_held_parameters(torch::optim::Optimizer& optimizer, const StageModule& module);

// Creates the gradient buffers of the held parameters and, if necessary, masters in the optimizer's groups.
// `mesh` and `shards` are not owned; `shards` is null if no parameter is sharded over replicas.
std::shared_ptr<BoostedOptimizer> boost_optimizer(const BoostRequest& request,
                                                  const std::vector<HeldTensor>& parameters,
                                                  std::vector<SharedGradient> shared, const ParallelOptions& options,
                                                  const ProcessGroupMesh& mesh, const PipelineStageManager& stages,
                                                  const ParameterShards* shards);

// Sets evaluation mode for its lifetime, if `on`.
class EvaluationGuard {
 public:
  EvaluationGuard(torch::nn::Module& module, bool on);
  // Restores the mode of every module.
  ~EvaluationGuard();
  EvaluationGuard(const EvaluationGuard&) = delete;
  EvaluationGuard& operator=(const EvaluationGuard&) = delete;

 private:
  torch::nn::Module* module_ = nullptr;  // null: not on
  bool was_training_ = false;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> inner_;  // parents before their children
};

}  // namespace gantry
