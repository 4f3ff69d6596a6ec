// The policy of models::T5, for the models of one family: two lists of layers, each of which shares a bias by distance.
#pragma once

#include "gantry/models/t5.h"
#include "gantry/policies/of_family.h"
#include "gantry/policies/pair_policy.h"

namespace gantry {

class T5Policy final : public OfFamily<PairPolicy<models::T5Impl>, models::T5Impl> {
 public:
  using OfFamily::OfFamily;

  std::string name() const override { return "T5Policy"; }
  ModelSplit split(const models::T5Impl& model) const override;
  // Each stage with layers of a stack also holds its bias.
  std::vector<std::string> held_layers(const torch::nn::Module& model, int stage, int num_stages,
                                       LayerRange layers) const override;
  SharedParameters shared_parameters(const models::T5Impl& model) const override;
};

}  // namespace gantry
