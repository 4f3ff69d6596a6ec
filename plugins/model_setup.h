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

// UsageError if the optimizer has stepped already: its state has the shapes of full parameters.
void refuse_used_optimizer(torch::optim::Optimizer* optimizer);

// Ranks that built the model with values drew them from generators of their own: rank 0's become everybody's. Deferred
// parameters need nothing. Collective over the world.
void synchronise_initial_weights(torch::nn::Module& model, const ProcessGroupMesh& mesh);

// Layers per stage according to schedule.layers, by the policy's ModelSplit::work if they are balanced; empty for the
// policy's own rule. Throws ConfigError if its work has another number of layers. `shares_vocabulary`: embedding and
// head do not belong to stages.
std::vector<int> chosen_layers(const ScheduleOptions& config, const Policy& policy, const torch::nn::Module& model,
                               const PipelineStageManager& stages, bool shares_vocabulary = false);

// A plain backward() has to sum what is partial over tp; a boosted step does so once.
GradientSum gradient_sum_of(Loop loop);

// Keeps the policy's split outputs split where the criterion can work on them; else has their layers gather them.
SplitOutputs bind_split_outputs(torch::nn::Module& model, const std::vector<SplitOutput>& outputs, bool keep_split,
                                ProcessGroup& tensor_group);

// ConfigError for a model of the program's own, which it has made in another precision than the file says. `held`: the
// type of the model's parameters, if they have one.
void refuse_other_precision(const PrecisionOptions& precision, const std::optional<torch::ScalarType>& held);

// Whether the model trains adapters, on this stage or another.
bool has_adapters(const StageModule& module);

// The groups over which shared parameters' gradients are summed: one for each distinct set of pipeline ranks, in sorted
// order. Collective over the world.
std::vector<SharedGradient> make_shared_groups(const StageModule& module, const PipelineStageManager& stages,
                                               const ProcessGroupMesh& mesh,
                                               std::vector<std::unique_ptr<ProcessGroup>>& groups);

// Parameters that this rank does not hold leave the optimizer's groups. ConfigError if it holds trainable ones of
// another model.
void keep_held_parameters(torch::optim::Optimizer& optimizer, const StageModule& module);

// Gives the held parameters their gradient buffers and, where it takes them, masters in the optimizer's groups. `mesh`
// and `shards` are not owned; the latter is null if no parameter is sharded over replicas.
std::shared_ptr<BoostedOptimizer> boost_optimizer(const BoostRequest& request,
                                                  const std::vector<HeldTensor>& parameters,
                                                  std::vector<SharedGradient> shared, const ParallelOptions& options,
                                                  const ProcessGroupMesh& mesh, const PipelineStageManager& stages,
                                                  const ParameterShards* shards);

// Evaluation mode for its lifetime, where `on`.
class EvaluationGuard {
 public:
  EvaluationGuard(torch::nn::Module& module, bool on);
  // Every module is then in the mode that it was in itself.
  ~EvaluationGuard();
  EvaluationGuard(const EvaluationGuard&) = delete;
  EvaluationGuard& operator=(const EvaluationGuard&) = delete;

 private:
  torch::nn::Module* module_ = nullptr;  // null: not on
  bool was_training_ = false;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> inner_;  // parents before their children
};

}  // namespace gantry
