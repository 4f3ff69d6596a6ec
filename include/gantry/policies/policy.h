// A policy describes how one kind of model is parallelized: the contents of each stage, how modules are sharded over
// tp, and which parameters are shared. The computation is the model's own stage_forward. A policy only declares and
// never communicates, so it can be tested without ranks. The interface follows ColossalAI's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/core/registry.h"
#include "gantry/nn/stage_context.h"
#include "gantry/policies/earlier_split.h"
#include "gantry/policies/model_split.h"
#include "gantry/tensors/batch.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

// Sets of parameter names, each of which is one shared parameter.
using SharedParameters = std::vector<std::vector<std::string>>;

// How a policy fits the class of a model: not at all, to a base class, or exactly.
enum class PolicyFit { kNone, kBase, kClass };

// The interface of policies. Derive from PolicyFor instead, unless a policy supports several model classes.
class Policy : public EarlierSplit<torch::nn::Module, EarlierBatchUse> {
 public:
  ~Policy() override = default;
  virtual std::string name() const = 0;  // class name, for messages

  // Used by policy_for() to select a policy. The default is kNone: the policy is only used if it is named.
  virtual PolicyFit fit(const torch::nn::Module& model) const;
  // Throws ConfigError if this policy does not support the model. Called before any change.
  virtual void validate(const torch::nn::Module& model) const;
  // Changes the model before anything is sharded. The default does nothing.
  virtual void preprocess(torch::nn::Module& model) const;
  // Returns how the model is split. Called before and after preprocess(), and often, so it must be cheap. The default
  // collects the functions of EarlierSplit, which have no effect in a policy that overrides split(). It is valid as
  // long as the policy and the model.
  virtual ModelSplit split(const torch::nn::Module& model) const;
  // Returns the number of layers of each stage. The default is gantry::distribute_layers().
  virtual std::vector<int> distribute_layers(int layers, int stages) const;
  // Returns the paths that `stage` holds. The default follows ModelSplit::stages.
  virtual std::vector<std::string> held_layers(const torch::nn::Module& model, int stage, int num_stages,
                                               LayerRange layers) const;
  // Returns the tied parameters. The default: none.
  virtual SharedParameters shared_parameters(const torch::nn::Module& model) const;
  // Runs the model's forward for one stage, with stage.run_layers(). `input` is the microbatch on the first stage, and
  // the result of the previous stage on the others. The result must contain only the tensors that later stages need.
  virtual TensorDict forward(torch::nn::Module& model, const StageContext& stage, TensorDict input) const = 0;
  // Changes the sharded model at the end. The default does nothing.
  virtual void postprocess(torch::nn::Module& model) const;
};

// A policy for one model class (the Impl class of TORCH_MODULE). Each function receives the model with this type.
template <class Model>
class PolicyFor : public EarlierSplit<Model, Policy> {
 public:
  virtual ModelSplit split(const Model& model) const {
    return this->with_use(EarlierSplit<Model, Policy>::fields(model), model);
  }
  virtual SharedParameters shared_parameters(const Model&) const { return {}; }
  // The default is Model::stage_forward(stage, input). For a model without it, the policy must override this function.
  virtual TensorDict forward(Model& model, const StageContext& stage, TensorDict input) const {
    if constexpr (requires { model.stage_forward(stage, std::move(input)); }) {
      return model.stage_forward(stage, std::move(input));
    } else {
      throw UsageError({this->name() + "::forward",
                        "neither the policy nor the model implements the forward of a stage", "",
                        "give the model a TensorDict stage_forward(const StageContext&, TensorDict)"});
    }
  }
  virtual void validate_model(const Model&) const {}
  virtual void preprocess_model(Model&) const {}
  virtual void postprocess_model(Model&) const {}

  PolicyFit fit(const torch::nn::Module& model) const override {
    if (typeid(model) == typeid(Model)) return PolicyFit::kClass;
    return dynamic_cast<const Model*>(&model) ? PolicyFit::kBase : PolicyFit::kNone;
  }
  void validate(const torch::nn::Module& model) const final { validate_model(typed(model)); }
  void preprocess(torch::nn::Module& model) const final { preprocess_model(typed(model)); }
  ModelSplit split(const torch::nn::Module& model) const final { return split(typed(model)); }
  SharedParameters shared_parameters(const torch::nn::Module& model) const final {
    return shared_parameters(typed(model));
  }
  TensorDict forward(torch::nn::Module& model, const StageContext& stage, TensorDict input) const final {
    return forward(typed(model), stage, std::move(input));
  }
  void postprocess(torch::nn::Module& model) const final { postprocess_model(typed(model)); }

 private:
  template <class M>
  auto& typed(M& model) const {
    using Typed = std::conditional_t<std::is_const_v<M>, const Model, Model>;
    auto* found = dynamic_cast<Typed*>(&model);
    if (!found) {
      throw ConfigError({this->name(), "the policy does not support models of class " + model.name(),
                         "the full model, not one of its modules",
                         "register a policy for this class, or pass the top-level model"});
    }
    return *found;
  }
};

// The lists of layers of the model that ModelSplit::stages names, in that order. Throws ConfigError if the model lacks
// one.
struct LayerList {
  std::string path;
  std::vector<std::shared_ptr<torch::nn::Module>> layers;
};
std::vector<LayerList> layer_lists(const Policy& policy, const torch::nn::Module& model);
// The modules of ModelSplit::split_outputs: the output layers of the model.
std::vector<std::string> output_layers(const Policy& policy, const torch::nn::Module& model);
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
