// The loss on held-out data in the midst of a run, and how good the predictions are.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "gantry/booster/booster.h"
#include "gantry/trainer/metrics.h"

namespace gantry {

class Evaluator {
 public:
  // Over the batches of `loader`, which boosting has distributed (Booster::distribute). `scores_predictions`:
  // outputs "logits" against labels or spans are scored too, as predicts_classes() of recipe.h says of a configuration;
  // logits are gathered whole for it.
  Evaluator(Booster& booster, std::shared_ptr<DataLoader> loader, bool scores_predictions = false)
      : booster_(booster), loader_(std::move(loader)), scores_predictions_(scores_predictions) {}

  // The mean over every counted token of the held-out batches, without gradients or dropout, as of `step`, and
  // accuracy and F1 of the predictions (EvaluationMetrics). Before each
  // batch `ends` is asked, which gives the same answer on all ranks; `stops` is as in ExecuteOptions. Nothing where one
  // of them said yes. Collective over the world.
  std::optional<EvaluationMetrics> run(std::int64_t step, Boosted& boosted, const std::function<bool()>& ends = {},
                                       const std::function<bool()>& stops = {});

 private:
  Booster& booster_;
  std::shared_ptr<DataLoader> loader_;
  bool scores_predictions_;
};

}  // namespace gantry
