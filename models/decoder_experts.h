// The experts of a described layer: a router, the experts that it chooses from, and an MLP that all tokens use.
#pragma once

#include <functional>
#include <memory>

#include "gantry/models/described/decoder_spec.h"
#include "gantry/nn/experts.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

class ExpertsOfLayer {
 public:
  // Registers its modules below `root`, a layer, at the paths in `names`.
  ExpertsOfLayer(torch::nn::Module& root, const ExpertsSpec& spec, const DecoderNames& names, std::int64_t hidden);
  struct Output {
    torch::Tensor output;  // [B, S, H], like the input
    nn::Routing routing;
  };
  Output forward(const torch::Tensor& input);

  // True if rows are sent to other ranks. add_parts() then adds the parts "dispatch", "experts" and "combine"
  // of a layer. Between them, other computations can run while tokens are in flight, and the graph can be
  // split. `before` computes the experts' input from the state's "hidden". `after` computes the next "hidden"
  // from this "hidden" and the experts' output.
  bool travels() const { return experts_->travels(); }
  using Before = std::function<torch::Tensor(const torch::Tensor& hidden)>;
  using After = std::function<torch::Tensor(const torch::Tensor& hidden, const torch::Tensor& made)>;
  void add_parts(LayerParts& parts, const Before& before, const After& after);

 private:
  // dispatch() and compute() return the entries of the state that they change. combine() returns the output.
  using Dispatch = std::shared_ptr<nn::DispatchedExperts>;
  TensorDict dispatch(const torch::Tensor& input, const nn::Routing& routing, Dispatch& dispatched);
  TensorDict compute(const TensorDict& state, nn::DispatchedExperts& dispatched);
  torch::Tensor combine(const TensorDict& state, nn::DispatchedExperts& dispatched);

  // The MLP that all tokens use, in two parts.
  torch::Tensor shared_wide(const torch::Tensor& input);
  torch::Tensor shared(const torch::Tensor& input, const torch::Tensor& wide);

  const std::string activation_;
  nn::Router router_{nullptr};
  nn::Experts experts_{nullptr};
  nn::Linear gate_{nullptr}, up_{nullptr}, gate_up_{nullptr}, down_{nullptr}, shared_gate_{nullptr};
};

}  // namespace gantry::models
