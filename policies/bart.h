// The policy of models::Bart, for the models of one family: two lists of layers that share an embedding.
#pragma once

#include "gantry/models/bart.h"
#include "gantry/policies/pair_policy.h"

namespace gantry {

class BartPolicy final : public StacksPolicy<models::BartImpl> {
 public:
  explicit BartPolicy(std::string family) : family_(std::move(family)) {}

  std::string name() const override { return "BartPolicy"; }
  PolicyFit fit(const torch::nn::Module& model) const override;
  void validate_model(const models::BartImpl& model) const override;
  ModelSplit split(const models::BartImpl& model) const override;
  SharedParameters shared_parameters(const models::BartImpl& model) const override;

 private:
  std::string family_;
};

}  // namespace gantry
