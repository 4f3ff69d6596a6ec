// A policy says how one kind of model is split: what each stage holds, how modules are sharded over tp, and which
// parameters are shared. The arithmetic is the model's own: its stage_forward. A policy declares and never
// communicates, so it is tested without ranks. ColossalAI's contract, each part by name.
#pragma once

#include <functional>
#include <initializer_list>
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
#include "gantry/core/registry.h"
#include "gantry/nn/shard_style.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/batch.h"

namespace gantry {

// Which module (a path, Star::kOnePart of core/wildcard.h) is split how; Whole{} and SequenceParallel{} may also name a
// parameter by its path.
struct ShardRule {
  std::string pattern;
  ShardStyle style;
};
using ShardPlan = std::vector<ShardRule>;

// A list of layers, which is partitioned over stages. `with_first`: what the stage of its first layer holds beside.
struct RepeatedList {
  std::string path;
  std::vector<std::string> with_first = {};
};

// One list, "h", or several that run one after the other, each with layers and lengths of its own: an encoder's and a
// decoder's.
class RepeatedLists {
 public:
  RepeatedLists() = default;
  RepeatedLists(const char* path) : RepeatedLists(std::string(path)) {}         // NOLINT: a path is a list
  RepeatedLists(std::string path) { lists_.push_back({std::move(path), {}}); }  // NOLINT
  RepeatedLists(std::initializer_list<RepeatedList> lists) : lists_(lists) {}

  const std::vector<RepeatedList>& lists() const { return lists_; }

 private:
  std::vector<RepeatedList> lists_;
};

// Module paths: held by the first stage, the layers, held by the last stage. Parameters and buffers of the root's own
// are named by their paths.
struct StageLayout {
  std::vector<std::string> first;
  RepeatedLists repeated;
  std::vector<std::string> last;
};

// Sets of parameter names that are one parameter.
using SharedParameters = std::vector<std::vector<std::string>>;

// An output of the last stage whose last dim is split over tp as the output of a column-sharded Linear.
struct SplitOutput {
  std::string output;  // "logits"
  std::string module;  // "lm_head"
};

// The two matrices of a model that have a row a word, by the paths of their modules: an nn::Embedding, and the
// nn::Linear that makes the output `logits` [samples, tokens, words], which become soft_cap * tanh(scale * logits /
// soft_cap). The model's stage_forward does without both where StageContext::vocabulary_apart() says so.
struct VocabularyModules {
  std::string embedding, head;
  std::string output = "logits";
  double scale = 1;
  double soft_cap = 0;  // 0: none
};

// How a model's text can be continued (gantry::generate).
struct Continuation {
  bool is_possible = true;     // its "logits" [samples, tokens, vocabulary] are those of the next token
  bool is_cached = false;      // forward() takes StageContext::tokens(): else whole texts are computed for each token
  std::int64_t positions = 0;  // at most so many tokens a text; 0: any number
  // Of an encoder and a decoder: prompts are what the encoder reads, input_ids and attention_mask, and a text begins
  // with this token as decoder_input_ids. Absent: prompts are continued themselves.
  std::optional<std::int64_t> start_token = {};
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
  // The model's forward for one stage, by stage.run_layers. `input` is the microbatch on the first stage, else what the
  // previous stage returned: what this stage and later ones read, and no more.
  virtual TensorDict forward(torch::nn::Module& model, const StageContext& stage, TensorDict input) const = 0;
  virtual void postprocess(torch::nn::Module& model) const;
  virtual Continuation continuation(const torch::nn::Module& model) const;
  // The key that asks for a loss over all layers and samples of a step at once, such that a step has one stage, one
  // replica and one microbatch: else a training step refuses it. Empty, the default: there is none.
  virtual std::string joint_loss(const torch::nn::Module& model) const;
  // Where forward() computes parts of sequences that ranks share (parallel.context), by StageContext::tokens() and
  // AttentionOptions::sequence: the fewest heads of any layer. Absent, the default: it needs whole sequences.
  virtual std::optional<AttentionHeads> context_heads(const torch::nn::Module& model) const;
  // What `parallel.vocabulary: pipeline` cuts over the stages' ranks. Absent, the default: the model can't do without.
  virtual std::optional<VocabularyModules> vocabulary(const torch::nn::Module& model) const;
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
  // The default is the model's own, Model::stage_forward(stage, input); a model without one has its policy's.
  virtual TensorDict forward(Model& model, const StageContext& stage, TensorDict input) const {
    if constexpr (requires { model.stage_forward(stage, std::move(input)); }) {
      return model.stage_forward(stage, std::move(input));
    } else {
      throw UsageError({name() + "::forward", "there is none, and the model has no stage_forward", "one of both",
                        "give the model a TensorDict stage_forward(const StageContext&, TensorDict)"});
    }
  }
  virtual void validate_model(const Model&) const {}
  virtual void preprocess_model(Model&) const {}
  virtual void postprocess_model(Model&) const {}
  virtual Continuation continuation(const Model&) const { return {}; }
  virtual std::string joint_loss(const Model&) const { return ""; }
  virtual std::optional<AttentionHeads> context_heads(const Model&) const { return std::nullopt; }
  virtual std::optional<VocabularyModules> vocabulary(const Model&) const { return std::nullopt; }

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
  std::string joint_loss(const torch::nn::Module& model) const final { return joint_loss(typed(model)); }
  std::optional<AttentionHeads> context_heads(const torch::nn::Module& model) const final {
    return context_heads(typed(model));
  }
  std::optional<VocabularyModules> vocabulary(const torch::nn::Module& model) const final {
    return vocabulary(typed(model));
  }

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

// The model's lists of layers, which the policy's stage_layout names, in that order. ConfigError where the model has
// none there.
struct LayerList {
  std::string path;
  std::vector<std::shared_ptr<torch::nn::Module>> layers;
};
std::vector<LayerList> layer_lists(const Policy& policy, const torch::nn::Module& model);
// The layers of all lists.
int layer_count(const Policy& policy, const torch::nn::Module& model);
// "h.3": of a layer counted over all lists.
std::string layer_path(const std::vector<LayerList>& lists, int layer);

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
