// The policy of models::Bart, for the models of one family: two lists of layers that share an embedding.
#pragma once

#include "gantry/models/bart.h"
#include "gantry/policies/of_family.h"
#include "gantry/policies/pair_policy.h"

namespace gantry {

class BartPolicy final : public OfFamily<StacksPolicy<models::BartImpl>, models::BartImpl> {
 public:
  using OfFamily::OfFamily;

  std::string name() const override { return "BartPolicy"; }
  ModelSplit split(const models::BartImpl& model) const override;
  SharedParameters shared_parameters(const models::BartImpl& model) const override;
};

}  // namespace gantry
