// A policy says how one kind of model is split: what each stage holds, how modules are sharded over tp, which
// parameters are shared, and the stage-aware forward. It declares and never communicates, so it is tested without
// ranks. ColossalAI's contract, each part by name.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/core/layer_work.h"
#include "gantry/core/pipeline_stage_manager.h"
#include "gantry/core/registry.h"
#include "gantry/nn/key_value_cache.h"
#include "gantry/nn/shard_style.h"
#include "gantry/tensors/batch.h"

namespace gantry {

// Which module (a path, Star::kOnePart of core/wildcard.h) is split how; Whole{} and SequenceParallel{} may also name a
// parameter by its path.
struct ShardRule {
  std::string pattern;
  ShardStyle style;
};
using ShardPlan = std::vector<ShardRule>;

// Module paths: held by the first stage, the list whose layers are partitioned over stages, held by the last stage.
// Parameters and buffers of the root's own are named by their paths.
struct StageLayout {
  std::vector<std::string> first;
  std::string repeated;
  std::vector<std::string> last;
};

// Sets of parameter names that are one parameter.
using SharedParameters = std::vector<std::vector<std::string>>;

// An output of the last stage whose last dim is split over tp as the output of a column-sharded Linear.
struct SplitOutput {
  std::string output;  // "logits"
  std::string module;  // "lm_head"
};

// How a model's text can be continued (gantry::generate).
struct Continuation {
  bool is_possible = true;     // its "logits" [samples, tokens, vocabulary] are those of the next token
  bool is_cached = false;      // forward() takes StageContext::tokens(): else whole texts are computed for each token
  std::int64_t positions = 0;  // at most so many tokens a text; 0: any number
};

// What of a stage's activations the backward computes again: nothing, attention's core, or whole layers.
enum class Recomputation { kNone, kSelective, kFull };

// What a forward knows of its stage. A stage's forward gets one that lives until the backward of what run_layers
// recomputes.
class StageContext : public std::enable_shared_from_this<StageContext> {
 public:
  struct Settings {
    const TensorDict* batch = nullptr;  // the microbatch; not owned, may be null
    Recomputation recomputation = Recomputation::kNone;
    std::vector<int>
        recomputed_layers;  // the first so many of each stage: one number for all, or one per stage; empty: all
    const nn::TokenContext* tokens = nullptr;  // of texts that are continued; not owned, null: of the batch
    int* running_layer = nullptr;  // told by run_layers() which layer runs, -1 between them; not owned, may be null
    ProcessGroup* sequence_group = nullptr;  // over which activations are sequence shards; not owned, null: whole
  };
  StageContext(int stage, int num_stages, LayerRange layers,
               Settings settings = {nullptr, Recomputation::kNone, {}, nullptr, nullptr, nullptr})
      : stage_(stage), num_stages_(num_stages), layers_(layers), settings_(std::move(settings)) {}

  int stage() const { return stage_; }
  int num_stages() const { return num_stages_; }
  bool is_first() const { return stage_ == 0; }
  bool is_last() const { return stage_ == num_stages_ - 1; }
  LayerRange layer_range() const { return layers_; }
  std::vector<int> layers() const;  // the indices of this stage's layers

  // Runs this stage's layers one after the other: hidden = layer(index, hidden), recomputed in the backward where the
  // configuration says so. `layer` reads nothing that changes until then, and holds what it needs by value, by module
  // or by this stage.
  using Layer = std::function<torch::Tensor(int index, const torch::Tensor& hidden)>;
  torch::Tensor run_layers(torch::Tensor hidden, const Layer& layer) const;

  // How `index`, one of this stage's layers, is recomputed.
  Recomputation recomputation(int index) const;

  // What layers are told of the tokens: which of them count, by the batch's attention_mask; where texts are continued,
  // their positions and the cache too.
  nn::TokenContext tokens() const;

  // The microbatch's own tensors, where this rank has them (attention masks, ...).
  const TensorDict& batch() const;
  // Adds a scalar sum to the loss, with this stage as its owner; within run_layers too. `of`: where activations are
  // sequence shards, what the sum goes over: Shard{dim}, this rank's part of the sequence alone (the parts are then
  // summed over tp: collective over it), or Replicate{}, all of it. Elsewhere it changes nothing. UsageError where
  // activations are sequence shards and nothing is said, and for Partial{}.
  void add_loss(const torch::Tensor& loss, const std::optional<Layout>& of = std::nullopt) const;
  // What was added so far, undefined if nothing was; from then on nothing again.
  torch::Tensor take_added_loss() const { return std::exchange(added_loss_, torch::Tensor()); }

 private:
  int stage_;
  int num_stages_;
  LayerRange layers_;
  Settings settings_;
  mutable torch::Tensor added_loss_;
};

// Whether a policy is for models of a class: for a base of it, or for the class itself.
enum class PolicyFit { kNone, kBase, kClass };

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string name() const = 0;  // of the class, for messages

  // What policy_for chooses by. The default is kNone: a policy that does not say is used by its name alone.
  virtual PolicyFit fit(const torch::nn::Module& model) const;
  // Refuses what this policy can't split, before anything changes. ConfigError.
  virtual void validate(const torch::nn::Module& model) const;
  virtual void preprocess(torch::nn::Module& model) const;
  virtual ShardPlan shard_plan(const torch::nn::Module& model) const = 0;
  virtual StageLayout stage_layout(const torch::nn::Module& model) const = 0;
  // Layers per stage; the default is gantry::distribute_layers.
  virtual std::vector<int> distribute_layers(int layers, int stages) const;
  // What `schedule.layers: balanced` weighs: the forward's FLOPs per token of each layer, and of the first and the last
  // stage beside, or any other unit that is the same for all. The default counts a multiplication for each weight of
  // matrices, and none for embeddings, which are looked up.
  virtual LayerWork layer_work(const torch::nn::Module& model) const;
  // The paths that `stage` holds; the default follows stage_layout.
  virtual std::vector<std::string> held_layers(const torch::nn::Module& model, int stage, int num_stages,
                                               LayerRange layers) const;
  virtual SharedParameters shared_parameters(const torch::nn::Module& model) const;
  virtual std::vector<SplitOutput> split_outputs(const torch::nn::Module& model) const;
  // The model's forward for one stage. Loops over stage.layers() only. `input` is the microbatch on the first stage,
  // else what the previous stage returned.
  virtual TensorDict forward(torch::nn::Module& model, const StageContext& stage, TensorDict input) const = 0;
  virtual void postprocess(torch::nn::Module& model) const;
  virtual Continuation continuation(const torch::nn::Module& model) const;
  // Tokens of each sample of a batch, 0 where the batch does not say: sequence parallelism has to know, unless
  // Batch::tokens_per_sample does. The default: dim 1 of input_ids, or of all [samples, tokens] integers, where they
  // agree.
  virtual std::int64_t tokens_per_sample(const TensorDict& batch) const;
  // Entries of the microbatch that forward() reads by StageContext::batch() on stages between the first and the last.
  // Ranks that hold no other stages read their samples only for these. "*", the default: they may be any.
  virtual std::vector<std::string> entries_between() const { return {"*"}; }
};

// A policy for one model class (the Impl class of TORCH_MODULE): each part takes the model by its type.
template <class Model>
class PolicyFor : public Policy {
 public:
  virtual ShardPlan shard_plan(const Model& model) const = 0;
  virtual StageLayout stage_layout(const Model& model) const = 0;
  virtual LayerWork layer_work(const Model& model) const {
    return Policy::layer_work(static_cast<const torch::nn::Module&>(model));
  }
  virtual SharedParameters shared_parameters(const Model&) const { return {}; }
  virtual std::vector<SplitOutput> split_outputs(const Model&) const { return {}; }
  virtual TensorDict forward(Model& model, const StageContext& stage, TensorDict input) const = 0;
  virtual void validate_model(const Model&) const {}
  virtual void preprocess_model(Model&) const {}
  virtual void postprocess_model(Model&) const {}
  virtual Continuation continuation(const Model&) const { return {}; }

  PolicyFit fit(const torch::nn::Module& model) const override {
    if (typeid(model) == typeid(Model)) return PolicyFit::kClass;
    return dynamic_cast<const Model*>(&model) ? PolicyFit::kBase : PolicyFit::kNone;
  }
  void validate(const torch::nn::Module& model) const final { validate_model(typed(model)); }
  void preprocess(torch::nn::Module& model) const final { preprocess_model(typed(model)); }
  ShardPlan shard_plan(const torch::nn::Module& model) const final { return shard_plan(typed(model)); }
  StageLayout stage_layout(const torch::nn::Module& model) const final { return stage_layout(typed(model)); }
  LayerWork layer_work(const torch::nn::Module& model) const final { return layer_work(typed(model)); }
  SharedParameters shared_parameters(const torch::nn::Module& model) const final {
    return shared_parameters(typed(model));
  }
  std::vector<SplitOutput> split_outputs(const torch::nn::Module& model) const final {
    return split_outputs(typed(model));
  }
  TensorDict forward(torch::nn::Module& model, const StageContext& stage, TensorDict input) const final {
    return forward(typed(model), stage, std::move(input));
  }
  void postprocess(torch::nn::Module& model) const final { postprocess_model(typed(model)); }
  Continuation continuation(const torch::nn::Module& model) const final { return continuation(typed(model)); }

 private:
  template <class M>
  auto& typed(M& model) const {
    using Typed = std::conditional_t<std::is_const_v<M>, const Model, Model>;
    auto* found = dynamic_cast<Typed*>(&model);
    if (!found) {
      throw ConfigError({name(), "is not a policy for a model of class " + model.name(),
                         "the whole model, not a module inside it",
                         "register a policy for this class, or pass the top-level model"});
    }
    return *found;
  }
};

// The model's list of layers, which the policy's stage_layout names. ConfigError where the model has none there. Where
// it names none, layer_count is 0.
const torch::nn::Module& layer_list(const Policy& policy, const torch::nn::Module& model);
int layer_count(const Policy& policy, const torch::nn::Module& model);

using PolicyFactory = std::function<std::shared_ptr<const Policy>()>;

class PolicyRegistry : public Registry<PolicyFactory> {
 public:
  PolicyRegistry() : Registry("policy") {}
  template <class P>
  void add(const std::string& name) {
    Registry::add(name, [] { return std::make_shared<const P>(); });
  }
};

// The registry; Gantry's own policies are in it from the start.
PolicyRegistry& policies();

// The registered policy for a model's class, else for a base of it; it has validated the model. ConfigError that names
// the class where there is none, that names the policies where there are several, and the policy's own where it refuses
// the model.
std::shared_ptr<const Policy> policy_for(const torch::nn::Module& model);
// Its registered name. The same errors.
std::string policy_name_for(const torch::nn::Module& model);

}  // namespace gantry
