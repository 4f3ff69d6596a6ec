// A policy describes how one kind of model is parallelized: the contents of each stage, how modules are sharded over
// tp, and which parameters are shared. The computation is the model's own stage_forward. A policy only declares and
// never communicates, so it can be tested without ranks. The interface follows ColossalAI's.
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

#include "gantry/core/error.h"
#include "gantry/core/layer_work.h"
#include "gantry/core/registry.h"
#include "gantry/nn/shard_style.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/batch.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

// Applies a style to all modules whose path matches (`*` matches any text within one part of the path). FullSequence{}
// and SequenceParallel{} can also name a parameter by its path.
struct ShardRule {
  std::string pattern;
  ShardStyle style;
};
using ShardPlan = std::vector<ShardRule>;

// A list of layers that is partitioned over stages. `with_first`: paths that are held by the stage of its first layer.
struct RepeatedList {
  std::string path;
  std::vector<std::string> with_first = {};
};

// One list of layers, "h", or several that run one after the other and have their own layers and lengths, such as those
// of an encoder and a decoder.
class RepeatedLists {
 public:
  RepeatedLists() = default;
  RepeatedLists(const char* path) : RepeatedLists(std::string(path)) {}         // NOLINT: allows a path as a list
  RepeatedLists(std::string path) { lists_.push_back({std::move(path), {}}); }  // NOLINT
  RepeatedLists(std::initializer_list<RepeatedList> lists) : lists_(lists) {}

  const std::vector<RepeatedList>& lists() const { return lists_; }

 private:
  std::vector<RepeatedList> lists_;
};

// The module paths that the first stage holds, the layers, and the module paths that the last stage holds. Parameters
// and buffers of the root module are listed by their paths.
struct StageLayout {
  std::vector<std::string> first;
  RepeatedLists repeated;
  std::vector<std::string> last;
};

// Sets of parameter names, each of which is one shared parameter.
using SharedParameters = std::vector<std::vector<std::string>>;

// An output of the last stage whose last dimension is sharded over tp, like the output of a column-sharded Linear.
struct SplitOutput {
  std::string output;  // "logits"
  std::string module;  // "lm_head"
};

// The paths of the two modules of a model whose weights have one row per token of the vocabulary: an nn::Embedding, and
// the nn::Linear that computes the output `logits` [samples, tokens, vocabulary]. The logits become soft_cap *
// tanh(scale * logits / soft_cap). The model's stage_forward must skip both modules if StageContext::vocabulary_apart()
// is true.
struct VocabularyModules {
  std::string embedding, head;
  std::string output = "logits";
  double scale = 1;
  double soft_cap = 0;  // 0: none
};

// Whether and how a model can generate text (gantry::generate).
struct Continuation {
  bool is_possible = true;  // "logits" [samples, tokens, vocabulary] predict the next token
  // True: forward() uses StageContext::tokens() and the key-value cache. False: the full sequence is recomputed for
  // each token.
  bool is_cached = false;
  std::int64_t positions = 0;  // maximum number of tokens of a sequence; 0: unlimited
  // For encoder-decoder models: the first token of decoder_input_ids. The prompts are input_ids and attention_mask of
  // the encoder. Not set: the prompts themselves are continued.
  std::optional<std::int64_t> start_token = {};
  // For models that read images: completes a batch of prompts, input_ids and attention_mask padded on the left, with
  // the entries of their images, which may have the order of Hugging Face's processors. Returns the batch with the
  // samples first and with all entries that follow from tokens. Null: the model reads no images.
  std::function<TensorDict(TensorDict batch)> with_images = {};
};

// How a policy fits the class of a model: not at all, to a base class, or exactly.
enum class PolicyFit { kNone, kBase, kClass };

// The interface of policies. Derive from PolicyFor instead, unless a policy supports several model classes.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string name() const = 0;  // class name, for messages

  // Used by policy_for() to select a policy. The default is kNone: the policy is only used if it is named.
  virtual PolicyFit fit(const torch::nn::Module& model) const;
  // Throws ConfigError if this policy does not support the model. Called before any change.
  virtual void validate(const torch::nn::Module& model) const;
  // Changes the model before anything is sharded. The default does nothing.
  virtual void preprocess(torch::nn::Module& model) const;
  // Returns how modules are sharded over tp. Modules without a rule are replicated. With sequence parallelism, modules
  // with parameters need a rule.
  virtual ShardPlan shard_plan(const torch::nn::Module& model) const = 0;
  // Returns which modules belong to the first stage, the layers, and the last stage.
  virtual StageLayout stage_layout(const torch::nn::Module& model) const = 0;
  // Returns the number of layers of each stage. The default is gantry::distribute_layers().
  virtual std::vector<int> distribute_layers(int layers, int stages) const;
  // Returns the costs for `schedule.layers: balanced`: the forward FLOPs per token, or any other unit, of each layer,
  // and in addition of the first and the last stage. The default counts the weights of matrices, without those of
  // embeddings.
  virtual LayerWork layer_work(const torch::nn::Module& model) const;
  // Returns the paths that `stage` holds. The default follows stage_layout().
  virtual std::vector<std::string> held_layers(const torch::nn::Module& model, int stage, int num_stages,
                                               LayerRange layers) const;
  // Returns the tied parameters. The default: none.
  virtual SharedParameters shared_parameters(const torch::nn::Module& model) const;
  // Returns the outputs that stay sharded over tp. The default: none.
  virtual std::vector<SplitOutput> split_outputs(const torch::nn::Module& model) const;
  // Runs the model's forward for one stage, with stage.run_layers(). `input` is the microbatch on the first stage, and
  // the result of the previous stage on the others. The result must contain only the tensors that later stages need.
  virtual TensorDict forward(torch::nn::Module& model, const StageContext& stage, TensorDict input) const = 0;
  // Changes the sharded model at the end. The default does nothing.
  virtual void postprocess(torch::nn::Module& model) const;
  // Returns whether and how the model can generate text.
  virtual Continuation continuation(const torch::nn::Module& model) const;
  // Returns the key that requests a loss over all layers and samples of a step together, so that a step must have one
  // stage, one replica and one microbatch; otherwise the training step throws. Empty, the default: there is no such
  // loss.
  virtual std::string joint_loss(const torch::nn::Module& model) const;
  // Returns the smallest number of heads of any layer if forward() supports context parallelism (parallel.context),
  // with StageContext::tokens() and AttentionOptions::sequence. Empty, the default: it needs full sequences.
  virtual std::optional<AttentionHeads> context_heads(const torch::nn::Module& model) const;
  // Returns the modules that `parallel.vocabulary: pipeline` shards over the ranks of the stages. Empty, the default:
  // the model does not support it.
  virtual std::optional<VocabularyModules> vocabulary(const torch::nn::Module& model) const;
  // Returns the number of tokens per sample of a batch, or 0 if it is unknown. Sequence parallelism needs it, unless
  // Batch::tokens_per_sample is set. The default is dimension 1 of input_ids or, without input_ids, of all [samples,
  // tokens] integer tensors if they agree.
  virtual std::int64_t tokens_per_sample(const TensorDict& batch) const;
  // Returns the batch entries that forward() reads through StageContext::batch() on stages between the first and the
  // last. Ranks that hold only such stages read no other entries. "*", the default: any entry.
  virtual std::vector<std::string> entries_between() const { return {"*"}; }
};

// A policy for one model class (the Impl class of TORCH_MODULE). Each function receives the model with this type.
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
  // The default is Model::stage_forward(stage, input). For a model without it, the policy must override this function.
  virtual TensorDict forward(Model& model, const StageContext& stage, TensorDict input) const {
    if constexpr (requires { model.stage_forward(stage, std::move(input)); }) {
      return model.stage_forward(stage, std::move(input));
    } else {
      throw UsageError({name() + "::forward", "neither the policy nor the model implements the forward of a stage", "",
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
      throw ConfigError({name(), "the policy does not support models of class " + model.name(),
                         "the full model, not one of its modules",
                         "register a policy for this class, or pass the top-level model"});
    }
    return *found;
  }
};

// The lists of layers of the model that stage_layout() names, in that order. Throws ConfigError if the model lacks one.
struct LayerList {
  std::string path;
  std::vector<std::shared_ptr<torch::nn::Module>> layers;
};
std::vector<LayerList> layer_lists(const Policy& policy, const torch::nn::Module& model);
// The total number of layers in all lists.
int layer_count(const Policy& policy, const torch::nn::Module& model);
// Returns "h.3" for a layer that is counted over all lists.
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

// The registry of policies. Gantry's own policies are always registered.
PolicyRegistry& policies();

// Returns the registered policy for the model's class, or else for a base class, after calling its validate(). Throws
// ConfigError that names the class if there is none, and that lists the policies if there are several. Also throws the
// errors of validate().
std::shared_ptr<const Policy> policy_for(const torch::nn::Module& model);
// Returns its registered name. Throws the same errors, except those of validate().
std::string policy_name_for(const torch::nn::Module& model);

}  // namespace gantry
