// What one forward knows, as one value, and where modules find it: in the innermost scope of their thread.
//
// Who runs a stage opens a scope with what it knows of the step. StageModule::forward adds the stage, and
// StageContext::run_layers what differs from layer to layer. A module looks while its forward runs and captures what
// its backward needs: a backward runs later, maybe on another thread, and finds nothing here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gantry/nn/layout.h"
#include "gantry/tensors/random_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

class LayerWatch;
class StageContext;

namespace nn {
class OutputObserver;
class RepeatedRouting;
class RouterImpl;
class WeightGradientStore;
struct RouterBalance;
}  // namespace nn

// What a forward tells whoever runs it, while it runs.
struct ForwardReport {
  int layer = -1;           // the one that runs, counted over all lists of layers; -1 between them
  std::string part;         // and its part; empty where the layer is one
  bool ran_layers = false;  // run_layers was called
  std::function<void(int layer, double begin, double end)> layer_ran = {};  // told of each, by core/steady_seconds.h
};

struct Forward {
  std::shared_ptr<const StageContext> stage;            // null: a module alone, outside of any stage
  std::optional<RandomContext> random;                  // absent: each call draws anew
  nn::WeightGradientStore* weight_gradients = nullptr;  // null: they are computed in the backward; not owned
  nn::OutputObserver* observer = nullptr;               // told what modules compute; not owned, may be null
  TensorDict* losses = nullptr;                         // where add_loss adds, by name; not owned, null: nowhere
  ForwardReport* report = nullptr;                      // not owned, may be null
  std::shared_ptr<LayerWatch> watch = {};               // told around layers, of their backward too; may be null
  const nn::RouterBalance* balance = nullptr;           // what routers add to the loss; not owned, null: nothing
  std::map<const nn::RouterImpl*, torch::Tensor>* choices = nullptr;  // where routers count; not owned, null: nowhere
  std::shared_ptr<nn::RepeatedRouting> routing = {};                  // of a part that is recomputed
  bool recomputes_attention = false;  // attention's core alone (Korthikanti et al., arXiv 2205.05198)
  int tensor_pieces = 1;              // of rows in which linear layers that are split send what they gather and sum
};

// Has the forwards of this thread find `forward` for its lifetime, and then what they found before.
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

// What the forward that runs on this thread knows. Outside of any scope: nothing.
const Forward& forward_now();

// Its random numbers; where it says none, each call gives a fresh step, so that a plain training loop draws anew.
RandomContext random_context();
// The whole sequence's length, 0 where it is not known. Takes no fresh step.
std::int64_t sequence_length();

// Adds a scalar to the sum of the loss, under a name by which metrics report it; from any module of any stage, within
// recomputed layers too, where it counts once. Like the criterion's sum it is divided by the step's counted tokens.
// `of`: where activations are sequence shards, what the sum goes over: Shard{dim}, this rank's part of the sequence
// alone (the parts are then summed over tp: collective over it), or Replicate{}, all of it. Elsewhere it changes
// nothing, but where ranks share sequences (parallel.context) the sum has to be Shard{dim}: else ConfigError.
// UsageError where activations are sequence shards and nothing is said, for Partial{}, for what is no scalar, and where
// gradients are computed and nobody takes the loss.
void add_loss(const std::string& name, const torch::Tensor& loss, const std::optional<Layout>& of = std::nullopt);

// As add_loss, of a sum that is whole already.
void add_whole_loss(const std::string& name, const torch::Tensor& loss);

}  // namespace gantry
