// Splits a model by its policy, in place, on one rank. Order: validate, preprocess, resolve shared parameters, release
// what is not held, apply the shard plan, materialise deferred parameters, postprocess, coverage check. Parameters keep
// their identity and their global names. Not collective.
#pragma once

#include <functional>
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
  // Not owned; that experts are partitioned over, which then communicate by `dispatch`. Null: they are split over
  // tensor_group.
  ProcessGroup* expert_group = nullptr;
  ExpertDispatch dispatch = ExpertDispatch::kAllToAll;
  std::vector<int> layers_of_stage;                 // empty: the policy's distribute_layers
  bool sequence_parallel = false;                   // activations between split modules are sequence shards
  GradientSum gradient_sum = GradientSum::kAtSync;  // where gradients that are partial over tp are summed
  std::uint64_t seed = 1;                           // of initial weights
  torch::Device device = torch::kCPU;               // where deferred parameters and buffers get their memory
  // Over which ranks rows of what tp leaves are cut (core/row_shards.h), and this rank's coordinates; not owned, null:
  // over none. Parameters then hold this rank's rows alone until somebody gives them memory for all.
  const RowShards* rows = nullptr;
  Coordinates coordinates = {};
  // Pp and tp: their ranks, whatever stages they hold, share the rows of embedding and head (Policy::vocabulary);
  // absent: these belong to stages.
  std::optional<ShardAxes> vocabulary = {};
};

// The sharded model of one rank.
class StageModule {
 public:
  // `sequence_group`: over which activations are sequence shards; not owned, null: they are whole.
  StageModule(std::shared_ptr<torch::nn::Module> model, std::shared_ptr<const Policy> policy,
              std::vector<LayerRange> ranges, ProcessGroup* sequence_group = nullptr,
              std::optional<VocabularyModules> vocabulary = std::nullopt);

  // The forward of one stage that this rank holds, in a scope of its own (nn/forward.h): what forward_now() knows, and
  // the stage. ConfigError where something was to be recomputed and the policy loops over its layers itself.
  TensorDict forward(int stage, TensorDict input, StageContext::Settings settings) const;

  torch::nn::Module& module() const { return *model_; }
  const std::shared_ptr<torch::nn::Module>& shared_module() const { return model_; }
  const Policy& policy() const { return *policy_; }
  int num_stages() const { return static_cast<int>(ranges_.size()); }
  const std::vector<LayerList>& lists() const { return lists_; }
  const std::vector<LayerRange>& layer_ranges() const { return ranges_; }  // by stage
  // What is computed outside of the stages, where ranks share its rows; null: nothing.
  const VocabularyModules* vocabulary() const { return vocabulary_ ? &*vocabulary_ : nullptr; }

  // What this rank holds, each once, in the model's order: the module's own parameters, but where rows are cut over
  // replicas this rank's rows of them.
  std::vector<HeldTensor> parameters;
  std::vector<Placement> all_placements;  // every parameter of the model, held here or not (shapes are global)
  std::vector<HeldTensor> buffers;        // held buffers (replicated)
  // Makes cut parameters whole for as long as what it gives is kept: for who runs forwards that no step does.
  // Collective over the ranks that rows are cut over. Null: nothing is cut.
  std::function<std::shared_ptr<void>()> gather;
  // Gives rows that optimizer masters alone have their memory and values, until the next step. Null: none are away.
  std::function<void()> materialize_shard;

 private:
  std::shared_ptr<torch::nn::Module> model_;
  std::shared_ptr<const Policy> policy_;
  std::vector<LayerRange> ranges_;
  std::vector<LayerList> lists_;
  ProcessGroup* sequence_group_;
  std::optional<VocabularyModules> vocabulary_;
};

// Splits `model`. ConfigError that names the path, the numbers and the remedy for: a rule that matches nothing, a
// module that can't be sharded, sizes that don't fit, a module matched twice, a parameter that no rule speaks for where
// activations are sequence shards, a parameter that no stage holds, one that two stages hold without being shared,
// shared parameters that are two tensors, ranks for experts and a plan without Expert{}, a model that was sharded
// before.
StageModule shard_model(std::shared_ptr<torch::nn::Module> model, std::shared_ptr<const Policy> policy,
                        const ShardConfig& config);

// ConfigError for a model that was split before: for callers that communicate before they split it.
void refuse_split_model(const std::shared_ptr<torch::nn::Module>& model);

// The Sharder's step that applies a plan, alone: shards the named modules of an ordinary model in place and leaves the
// rest; a plain forward() and backward() then do. initialize() of booster/initialize.h boosts a model by a plan, with
// its checkpoints, replicas and optimizer. The same errors. Patterns name modules by path, "*" for one part of it. A
// plan that makes activations sequence shards names all modules with parameters: gradients of those that see a shard
// are summed in the backward. The axes' group outlives the model: `mesh["tp"]`, or `{mesh, {"a", "b"}}` for several
// axes.
std::vector<Placement> parallelize_module(torch::nn::Module& model, const ShardAxes& axes, const ShardPlan& plan);

}  // namespace gantry
