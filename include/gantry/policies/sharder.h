// Shards a model by its policy, in place, on one rank. The steps are: validate, preprocess, check that stages hold all
// parameters, release the parameters of other stages, apply the shard plan, shard rows (ZeRO 3), materialize deferred
// parameters, postprocess. Parameters keep their identity and their global names. Not collective.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gantry/policies/policy.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

struct RowShards;

struct ShardConfig {
  const PipelineStageManager* stages = nullptr;  // not owned; null: one stage
  ProcessGroup* tensor_group = nullptr;          // not owned; null: no tensor parallelism
  // The group over which experts are partitioned; they communicate as in `dispatch`. Not owned; null: experts are
  // sharded over tensor_group.
  ProcessGroup* expert_group = nullptr;
  ExpertDispatch dispatch = ExpertDispatch::kAllToAll;
  std::vector<int> layers_of_stage;                 // empty: distribute_layers() of the policy
  bool sequence_parallel = false;                   // activations between sharded modules are sequence shards
  GradientSum gradient_sum = GradientSum::kAtSync;  // when gradients that are partial sums over tp are reduced
  std::uint64_t seed = 1;                           // seed of the initial weights
  torch::Device device = torch::kCPU;               // device of deferred parameters and buffers
  // The ranks over which rows of the tp shards are sharded (core/sharding/row_shards.h), and this rank's coordinates.
  // Parameters then hold only this rank's rows until they are gathered. Not owned; null: rows are not sharded.
  const RowShards* rows = nullptr;
  Coordinates coordinates = {};
  // The pp and tp axes over whose ranks the rows of embedding and head are sharded (ModelSplit::vocabulary),
  // independent of stages. Not set: embedding and head belong to stages.
  std::optional<ShardAxes> vocabulary = {};
};

// The sharded model of one rank.
class StageModule {
 public:
  // `sequence_group`: the group over which activations are sequence shards. Not owned; null: activations are full.
  // `vocabulary_apart`: embedding and head are computed outside of the stages, because ranks share their rows. Throws
  // ConfigError if the policy does not state these modules.
  StageModule(std::shared_ptr<torch::nn::Module> model, std::shared_ptr<const Policy> policy,
              std::vector<LayerRange> ranges, ProcessGroup* sequence_group = nullptr, bool vocabulary_apart = false);

  // Runs the forward of a stage that this rank holds, in a new forward scope (nn/forward.h) with the settings of
  // forward_now() and this stage. Throws ConfigError if layers should be recomputed, but the policy does not use
  // run_layers().
  TensorDict forward(int stage, TensorDict input, StageContext::Settings settings) const;

  torch::nn::Module& module() const { return *model_; }
  const Policy& policy() const { return *policy_; }
  const ModelSplit& split() const { return split_; }  // Policy::split() of the full model, after preprocess()
  int num_stages() const { return static_cast<int>(ranges_.size()); }
  const std::vector<LayerList>& lists() const { return lists_; }
  const std::vector<LayerRange>& layer_ranges() const { return ranges_; }  // indexed by stage
  // The modules that are computed outside of the stages; null: none.
  const VocabularyModules* vocabulary() const { return vocabulary_apart_ ? &*split_.vocabulary : nullptr; }

  // The placement of a parameter of the module; null for another tensor.
  const Placement* placement_of(const torch::Tensor& parameter) const;

  // The parameters that this rank holds, each once, in the order of the model. They are the module's own parameters or,
  // if rows are sharded over replicas, this rank's rows of them.
  std::vector<HeldTensor> parameters;
  std::vector<Placement> all_placements;  // all parameters of the model with their global shapes, held or not
  std::vector<HeldTensor> buffers;        // held buffers (replicated)
  ProcessGroup* tensor_group = nullptr;   // that shards the layers; not owned; null: none
  // Gathers sharded parameters, and keeps them unsharded until the result is destroyed. For forwards outside of a
  // training step. Collective over the ranks that hold the rows. Null: no parameter is sharded by rows.
  std::function<std::shared_ptr<void>()> gather;
  // Allocates and fills a shard whose values only the master weights hold, until the next step. Null: no shard is
  // released.
  std::function<void()> materialize_shard;

 private:
  std::shared_ptr<torch::nn::Module> model_;
  std::shared_ptr<const Policy> policy_;
  ModelSplit split_;
  std::vector<LayerRange> ranges_;
  std::vector<LayerList> lists_;
  ProcessGroup* sequence_group_;
  bool vocabulary_apart_;
  std::map<const void*, std::string> names_;  // names of the module's parameters; shared ones have their first name
};

// Shards `model`. Throws ConfigError with the path, the numbers and a remedy. Errors in the plan are a rule that
// matches nothing, two rules for the same module, a module that cannot be sharded, and sizes that do not fit. Also a
// parameter without a rule although activations are sequence shards, and ranks for experts without Expert{} in the
// plan. Errors in the stages are a parameter that no stage holds, a parameter that two stages hold without being
// declared as shared, and a shared parameter that consists of two tensors. A model that was sharded before is an error
// too.
StageModule shard_model(const std::shared_ptr<torch::nn::Module>& model, const std::shared_ptr<const Policy>& policy,
                        const ShardConfig& config);

// Throws ConfigError if the model was sharded before. For callers that communicate before they shard it.
void refuse_split_model(const std::shared_ptr<torch::nn::Module>& model);

// Only applies a plan: shards the modules of an ordinary model that it names, in place, for use with plain forward()
// and backward(). Throws the same errors. Patterns name modules by path; "*" matches one component. If a plan makes
// activations sequence shards, it must name all modules with parameters, and the gradients of modules that see a shard
// are reduced in backward(). The group of `axes` must outlive the model: `mesh["tp"]`, or `{mesh, {"a", "b"}}` for
// several axes.
// initialize() (booster/initialize.h) boosts a model by a plan, with checkpoints, replicas and an optimizer.
std::vector<Placement> parallelize_module(torch::nn::Module& model, const ShardAxes& axes, const ShardPlan& plan);

}  // namespace gantry
