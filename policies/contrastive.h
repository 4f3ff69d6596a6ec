// The policy of models::Contrastive.
#pragma once

#include "gantry/models/vision/contrastive.h"
#include "gantry/policies/of_family.h"

namespace gantry {

class ContrastivePolicy final : public OfFamily<PolicyFor<models::ContrastiveImpl>, models::ContrastiveImpl> {
 public:
  using OfFamily::OfFamily;
  std::string name() const override { return "ContrastivePolicy"; }
  ModelSplit split(const models::ContrastiveImpl& model) const override;
};

}  // namespace gantry
