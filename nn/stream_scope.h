// Modules that run outside of a stage's layers on other tokens than the stage's last list does, where ranks share
// sequences: an encoder's embedding, a head that has full sequences.
#pragma once

#include <memory>
#include <optional>

#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stage_context.h"

namespace gantry::nn {

// For its lifetime modules of this thread find `part` as their sequence; null: they have full ones. Where the stage
// has full sequences it does nothing.
class StreamScope {
 public:
  StreamScope(const StageContext& stage, const std::shared_ptr<const SequencePart>& part) {
    if (!stage.sequence()) return;
    Forward known = forward_now();
    known.stage = std::make_shared<const StageContext>(
        stage.stage(), stage.num_stages(), stage.layer_range(),
        StageContext::Settings{.batch = stage.batch(), .sequence_group = stage.sequence_group(), .sequence = part});
    scope_.emplace(std::move(known));
  }

 private:
  std::optional<ForwardScope> scope_;
};

}  // namespace gantry::nn
