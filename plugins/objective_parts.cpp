#include "gantry/plugins/objective_parts.h"

namespace gantry {

ObjectiveParts objective_parts(const ObjectiveConfig& objective) {
  const bool needs_step = objective.chosen_weight() > 0 || objective.name == "kto";
  return {.reference = objective.has_reference() ? std::make_shared<ReferenceScores>() : nullptr,
          .rewards = objective.has_preferences() ? std::make_shared<RewardMeter>() : nullptr,
          .step = needs_step ? std::make_shared<StepNumbers>() : nullptr,
          .teacher = objective.name == "distill" ? std::make_shared<TeacherLogits>() : nullptr};
}

}  // namespace gantry
