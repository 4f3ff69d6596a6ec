// The settings of one forward, which modules find in the innermost scope of their thread.
//
// The code that runs a stage opens a scope with the settings of the step. StageModule::forward adds the stage, and
// StageContext::run_layers the values that differ between layers. A module reads them while its forward runs and
// captures the values that its backward needs: a backward runs later, possibly on another thread, without a scope.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gantry/nn/added_loss.h"
#include "gantry/tensors/random_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

class LayerWatch;
struct Placement;
class StageContext;

namespace nn {
class OutputObserver;
class RepeatedRouting;
class RouterImpl;
class WeightGradientStore;
struct DeferredLogits;
struct RouterBalance;
}  // namespace nn

// Progress of a running forward, for the code that runs it.
struct ForwardReport {
  int layer = -1;           // the running layer, counted over all lists of layers; -1 between layers
  std::string part;         // its running part; empty if the layer is not divided into parts
  bool ran_layers = false;  // run_layers was called
  // Called after each layer with its start and end time (core/base/steady_seconds.h).
  std::function<void(int layer, double begin, double end)> layer_ran = {};
};

// The settings of a forward.
struct Forward {
  std::shared_ptr<const StageContext> stage;  // null: a module outside of a stage
  std::optional<RandomContext> random;        // not set: each call uses new random numbers
  // Null: weight gradients are computed in the backward; not owned.
  nn::WeightGradientStore* weight_gradients = nullptr;
  nn::OutputObserver* observer = nullptr;  // receives the outputs of modules; not owned; null: none
  TensorDict* losses = nullptr;            // name -> sum of add_loss(); not owned; null: losses are not collected
  // The factor of losses of parameters: the number by which the sum of the step's losses is divided, times the fraction
  // of the step's samples that this forward computes. Not set: unknown.
  std::optional<double> step_share = 1;
  // The placement of a parameter of the model; null for another tensor. Not set: parameters are full.
  std::function<const Placement*(const torch::Tensor& parameter)> placement_of = {};
  ForwardReport* report = nullptr;             // not owned; null: none
  std::shared_ptr<LayerWatch> watch = {};      // called before and after layers, also in their backward; null: none
  const nn::RouterBalance* balance = nullptr;  // losses that routers add; not owned; null: none
  // Counts of the routers' choices; not owned; null: not counted.
  std::map<const nn::RouterImpl*, torch::Tensor>* choices = nullptr;
  std::shared_ptr<nn::RepeatedRouting> routing = {};  // routing of a part that is recomputed
  bool recomputes_attention = false;  // recompute only the attention core (Korthikanti et al., arXiv 2205.05198)
  int tensor_pieces = 1;              // number of row chunks into which tensor-parallel layers split their messages
  // For each depth of multi-token prediction, the number of counted labels of the step over that of the depth; not
  // owned; null: the forward does not train these layers.
  const std::vector<double>* mtp_ratios = nullptr;
  // Receives the head and its input instead of logits that are too large; not owned; null: logits are computed.
  nn::DeferredLogits* logits = nullptr;
};

// Makes `forward` the settings of this thread during its lifetime, and then restores the previous ones.
class ForwardScope {
 public:
  explicit ForwardScope(Forward forward);
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  const Forward* former_;
  Forward forward_;
};

// The settings of the forward that runs on this thread; default settings outside of any scope.
const Forward& forward_now();

// Returns the random context of the forward. If it is not set, each call returns a new step, so that a plain training
// loop gets new random numbers.
RandomContext random_context();
// Returns the length of the full sequence, or 0 if it is unknown. Does not use a new step.
std::int64_t sequence_length();

}  // namespace gantry
