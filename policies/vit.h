// The policy of models::Vit.
#pragma once

#include "gantry/models/vit.h"
#include "gantry/policies/policy.h"

namespace gantry {

class VitPolicy final : public PolicyFor<models::VitImpl> {
 public:
  std::string name() const override { return "VitPolicy"; }
  ModelSplit split(const models::VitImpl& model) const override;
};

}  // namespace gantry
