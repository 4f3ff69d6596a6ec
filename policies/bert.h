// The policy of models::Bert, with any of its heads, for the models of one family.
#pragma once

#include "gantry/models/bert.h"
#include "gantry/policies/of_family.h"
#include "gantry/policies/text_encoder.h"

namespace gantry {

class BertPolicy final : public OfFamily<TextEncoderPolicy<models::BertImpl>, models::BertImpl> {
 public:
  using OfFamily::OfFamily;

  std::string name() const override { return "BertPolicy"; }
  ModelSplit split(const models::BertImpl& model) const override;
  SharedParameters shared_parameters(const models::BertImpl& model) const override;
};

}  // namespace gantry
