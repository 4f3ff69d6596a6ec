#include "gantry/booster/recipe.h"
#include "gantry/booster/run_task.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

void refuse_smoothing(const Config& config, const std::string& trained_on) {
  if (config.train.label_smoothing > 0)
    throw ConfigError({"train.label_smoothing", "the key has no effect for a model that is trained on " + trained_on,
                       "a model that is trained on tokens, pairs, images or classes", "remove the key"});
}

}  // namespace

Predictions predictions_of(const Config& config) {
  const std::string task = task_of(config), problem = problem_of(config);
  if (task == "spans") return Predictions::kSpans;
  if (problem == kRegression) return Predictions::kNumbers;
  if (problem == kSeveralLabels) return Predictions::kSeveralLabels;
  return task == "images" || task == "classes" ? Predictions::kClasses : Predictions::kNone;
}

Criterion build_criterion(const Config& config, const PreferenceParts& preferences) {
  config.mark_used("train.label_smoothing");
  config.mark_used("train.objective");
  const std::string task = task_of(config), problem = problem_of(config);
  if (const ObjectiveConfig& objective = config.train.objective; objective.is_on()) {
    refuse_smoothing(config, "preferences");
    if (objective.has_reference() && !preferences.reference)
      throw ConfigError({"train.objective",
                         objective.name + " compares with a reference model, whose scores only training computes",
                         "gantry train", "remove train.objective for this command"});
    return preference_loss(objective, preferences.reference, preferences.rewards);
  }
  if (task == "spans" || task == "none" || !problem.empty()) refuse_smoothing(config, problem.empty() ? task : problem);
  if (task == "none") return {};
  if (task == "spans") return answer_span_loss();
  if (problem == kRegression) return mean_squared_error();
  if (problem == kSeveralLabels) return binary_cross_entropy();
  return cross_entropy(
      {.label_smoothing = config.train.label_smoothing, .of_classes = task == "images" || task == "classes"});
}

}  // namespace gantry
