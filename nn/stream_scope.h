// For modules that run outside of a stage's layers, on other tokens than the last list of layers: the
// embedding of an encoder, or a head on full sequences. Needed if ranks share sequences.
#pragma once

#include <memory>
#include <optional>

#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stage_context.h"

namespace gantry::nn {

// During its lifetime, modules on this thread use `part` as their sequence; null: full sequences. No effect
// if the stage has full sequences.
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
