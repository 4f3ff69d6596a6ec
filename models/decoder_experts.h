// The experts of a described layer: a router, the experts that it chooses from, and an MLP that all tokens use.
#pragma once

#include "gantry/models/described/decoder_spec.h"
#include "gantry/nn/experts.h"
#include "gantry/nn/linear.h"

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

 private:
  // The MLP that all tokens use, in two parts.
  torch::Tensor shared_wide(const torch::Tensor& input);
  torch::Tensor shared(const torch::Tensor& input, const torch::Tensor& wide);

  const std::string activation_;
  nn::Router router_{nullptr};
  nn::Experts experts_{nullptr};
  nn::Linear gate_{nullptr}, up_{nullptr}, down_{nullptr}, shared_gate_{nullptr};
};

}  // namespace gantry::models
