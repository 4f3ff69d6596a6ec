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
  // Registers its modules below `root`, a layer, where `names` says.
  ExpertsOfLayer(torch::nn::Module& root, const ExpertsSpec& spec, const DecoderNames& names, std::int64_t hidden);
  struct Output {
    torch::Tensor output;  // [B, S, H], as the input
    nn::Routing routing;
  };
  Output forward(const torch::Tensor& input);

  // Where rows travel to other ranks: parts "dispatch", "experts" and "combine" of a layer, between which others may be
  // computed while tokens are in flight, and the graph be split. `before` makes of the state's "hidden" what experts
  // read, and `after` of it and of what they give the next one.
  bool travels() const { return experts_->travels(); }
  using Before = std::function<torch::Tensor(const torch::Tensor& hidden)>;
  using After = std::function<torch::Tensor(const torch::Tensor& hidden, const torch::Tensor& made)>;
  void add_parts(LayerParts& parts, const Before& before, const After& after);

 private:
  // Entries of a state that each step changes, and what the last one gives.
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
