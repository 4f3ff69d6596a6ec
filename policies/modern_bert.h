// The policy of models::ModernBert, with any of its heads.
#pragma once

#include "gantry/models/modern_bert.h"
#include "gantry/policies/text_encoder.h"

namespace gantry {

class ModernBertPolicy final : public TextEncoderPolicy<models::ModernBertImpl> {
 public:
  std::string name() const override { return "ModernBertPolicy"; }
  ModelSplit split(const models::ModernBertImpl& model) const override;
  SharedParameters shared_parameters(const models::ModernBertImpl& model) const override;
};

}  // namespace gantry
