// Evaluates the loss and the quality of predictions on held-out data during a run.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "gantry/booster/booster.h"
#include "gantry/booster/recipe.h"
#include "gantry/plugins/preference_loss.h"
#include "gantry/trainer/metrics.h"

namespace gantry {

// Returns the batch as the criterion needs it. Collective over the world.
using PrepareBatch = std::function<Batch(Batch batch)>;

class Evaluator {
 public:
  // Evaluates the batches of `loader`, which must be distributed (Booster::distribute). `predictions`: the
  // meaning of the output "logits", see predictions_of() in recipe.h. Predictions are scored against labels or spans,
  // for which the full logits are gathered. `prepare` is called with each batch before it is evaluated. `rewards`: the
  // meter of the criterion (ObjectiveParts::rewards).
  Evaluator(Booster& booster, std::shared_ptr<DataLoader> loader, Predictions predictions = Predictions::kNone,
            PrepareBatch prepare = {}, std::shared_ptr<RewardMeter> rewards = nullptr)
      : booster_(booster),
        loader_(std::move(loader)),
        predictions_(predictions),
        prepare_(std::move(prepare)),
        rewards_(std::move(rewards)) {}

  // Returns the mean loss over all counted tokens of the held-out batches, without gradients or dropout, and the
  // accuracy and F1 of predictions. `step` is copied to the result. `ends` is called before each batch and must return
  // the same value on all ranks. `stops` is passed on as ExecuteOptions::stops. Empty if one of them returned true.
  // Throws NumericalError if the mean loss is not finite. Collective over the world.
  std::optional<EvaluationMetrics> run(std::int64_t step, Boosted& boosted, const std::function<bool()>& ends = {},
                                       const std::function<bool()>& stops = {});

 private:
  Booster& booster_;
  std::shared_ptr<DataLoader> loader_;
  Predictions predictions_;
  PrepareBatch prepare_;
  std::shared_ptr<RewardMeter> rewards_;
};

}  // namespace gantry
