// The policy of models::Contrastive.
#pragma once

#include "gantry/models/vision/contrastive.h"
#include "gantry/policies/policy.h"

namespace gantry {

class ContrastivePolicy final : public PolicyFor<models::ContrastiveImpl> {
 public:
  explicit ContrastivePolicy(std::string family) : family_(std::move(family)) {}
  std::string name() const override { return "ContrastivePolicy"; }
  PolicyFit fit(const torch::nn::Module& model) const override;
  void validate_model(const models::ContrastiveImpl& model) const override;
  ModelSplit split(const models::ContrastiveImpl& model) const override;

 private:
  std::string family_;
};

}  // namespace gantry
