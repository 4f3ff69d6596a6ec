// Evaluates the loss and the quality of predictions on held-out data during a run.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "gantry/booster/booster.h"
#include "gantry/trainer/metrics.h"

namespace gantry {

class Evaluator {
 public:
  // Evaluates the batches of `loader`, which must be distributed (Booster::distribute). `scores_predictions`: also
  // score the output "logits" against labels or spans, for models for which predicts_classes() (recipe.h) is true; this
  // gathers the full logits.
  Evaluator(Booster& booster, std::shared_ptr<DataLoader> loader, bool scores_predictions = false)
      : booster_(booster), loader_(std::move(loader)), scores_predictions_(scores_predictions) {}

  // Returns the mean loss over all counted tokens of the held-out batches, without gradients or dropout, and the
  // accuracy and F1 of predictions. `step` is copied to the result. `ends` is called before each batch and must return
  // the same value on all ranks. `stops` is passed on as ExecuteOptions::stops. Empty if one of them returned true.
  // Collective over the world.
  std::optional<EvaluationMetrics> run(std::int64_t step, Boosted& boosted, const std::function<bool()>& ends = {},
                                       const std::function<bool()>& stops = {});

 private:
  Booster& booster_;
  std::shared_ptr<DataLoader> loader_;
  bool scores_predictions_;
};

}  // namespace gantry
