#include "gantry/booster/recipe.h"
#include "gantry/booster/run_task.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

void refuse_smoothing(const Config& config, const std::string& trained_on) {
  if (config.train.label_smoothing > 0)
    throw ConfigError({"train.label_smoothing", "the key has no effect for a model that is trained on " + trained_on,
                       "a model that is trained on tokens, pairs, images or classes", "remove the key"});
}

Criterion objective_criterion(const Config& config, const std::string& task, const ObjectiveParts& parts) {
  const ObjectiveConfig& objective = config.train.objective;
  const bool distils = objective.name == "distill";
  refuse_smoothing(config, distils ? "a teacher" : "preferences");
  const auto refuse_command = [&](const char* needs) {
    throw ConfigError(
        {"train.objective", objective.name + needs, "gantry train", "remove train.objective for this command"});
  };
  if (distils && task != "tokens")
    throw ConfigError({"train.objective", "distill does not fit a model that is trained on " + task,
                       "a decoder of one of Gantry's families", "remove the key"});
  if (distils && !parts.teacher) refuse_command(" needs a teacher, whose logits only training computes");
  if (distils) return distillation_loss(objective, parts.teacher);
  if (objective.has_reference() && !parts.reference)
    refuse_command(" compares with a reference model, whose scores only training computes");
  if (objective.chosen_weight() > 0 && !parts.step)
    refuse_command(" needs numbers of full steps, which only training has");
  return preference_loss(objective, parts);
}

// The mean of the losses that a model computes for each sample.
Criterion mean_of_samples() {
  return Criterion([](const TensorDict& outputs, const TensorDict&) {
    const torch::Tensor& losses = outputs.at("losses");
    return Loss(losses.sum(), torch::tensor(losses.numel(), torch::kInt64));
  });
}

}  // namespace

Predictions predictions_of(const Config& config) {
  if (config.train.objective.has_preferences()) return Predictions::kNone;
  const std::string task = task_of(config), problem = problem_of(config);
  if (task == "spans") return Predictions::kSpans;
  if (problem == kRegression) return Predictions::kNumbers;
  if (problem == kSeveralLabels) return Predictions::kSeveralLabels;
  return task == "images" || task == "classes" ? Predictions::kClasses : Predictions::kNone;
}

Criterion build_criterion(const Config& config, const ObjectiveParts& parts) {
  config.mark_used("train.label_smoothing");
  config.mark_used("train.objective");
  const std::string task = task_of(config), problem = problem_of(config);
  if (config.train.objective.is_on()) return objective_criterion(config, task, parts);
  if (task == "spans" || task == "none" || task == "contrast" || !problem.empty())
    refuse_smoothing(config, problem.empty() ? task : problem);
  if (task == "none") return {};
  if (task == "spans") return answer_span_loss();
  if (task == "contrast") return mean_of_samples();
  if (problem == kRegression) return mean_squared_error();
  if (problem == kSeveralLabels) return binary_cross_entropy();
  return cross_entropy(
      {.label_smoothing = config.train.label_smoothing, .of_classes = task == "images" || task == "classes"});
}

}  // namespace gantry
