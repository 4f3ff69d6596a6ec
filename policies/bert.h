// The policy of models::Bert, with any of its heads, for the models of one family.
#pragma once

#include "gantry/models/bert.h"
#include "gantry/policies/text_encoder.h"

namespace gantry {

class BertPolicy final : public TextEncoderPolicy<models::BertImpl> {
 public:
  explicit BertPolicy(std::string family) : family_(std::move(family)) {}

  std::string name() const override { return "BertPolicy"; }
  PolicyFit fit(const torch::nn::Module& model) const override;
  void validate_model(const models::BertImpl& model) const override;
  ModelSplit split(const models::BertImpl& model) const override;
  SharedParameters shared_parameters(const models::BertImpl& model) const override;

 private:
  std::string family_;
};

}  // namespace gantry
