// The policy of models::Whisper: two lists of layers.
#pragma once

#include "gantry/models/whisper.h"
#include "gantry/policies/pair_policy.h"

namespace gantry {

class WhisperPolicy final : public StacksPolicy<models::WhisperImpl> {
 public:
  std::string name() const override { return "WhisperPolicy"; }
  ModelSplit split(const models::WhisperImpl& model) const override;
  SharedParameters shared_parameters(const models::WhisperImpl& model) const override;
};

}  // namespace gantry
