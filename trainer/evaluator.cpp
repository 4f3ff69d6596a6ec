#include "gantry/trainer/evaluator.h"

#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/trainer/held_out_scores.h"

namespace gantry {

std::optional<EvaluationMetrics> Evaluator::run(std::int64_t step, Boosted& boosted, const std::function<bool()>& ends,
                                                const std::function<bool()>& stops) {
  EvaluationMetrics all{.step = step};
  HeldOutScores scores(predictions_);
  if (rewards_) rewards_->clear();
  double sum = 0;
  for (std::int64_t i = 0; i < loader_->steps(); ++i) {
    if (ends && ends()) return std::nullopt;
    Batch batch = loader_->batch(i);
    if (prepare_) batch = prepare_(std::move(batch));
    const StepResult result = booster_.execute_pipeline(batch, boosted,
                                                        {.return_outputs = predictions_ != Predictions::kNone,
                                                         .broadcast_loss = true,
                                                         .forward_only = true,
                                                         .stops = stops});
    if (result.aborted) return std::nullopt;
    sum += *result.loss * static_cast<double>(result.tokens);
    all.tokens += result.tokens;
    if (predictions_ != Predictions::kNone) scores.add(result.outputs, batch.tensors);
  }
  all.loss = all.tokens > 0 ? sum / static_cast<double>(all.tokens) : 0;
  if (!std::isfinite(all.loss) && !(boosted.optimizer && boosted.optimizer->skips_non_finite()))
    throw NumericalError({fmt::format("evaluation at step {}", step), fmt::format("the loss is {}", all.loss),
                          "a finite loss", "check the weights, the held-out data and the precision"});
  if (rewards_) all.rewards = rewards_->means(booster_.mesh().world_group());
  if (predictions_ == Predictions::kNone) return all;
  const HeldOutScores::Means means = scores.over(booster_.mesh());
  all.accuracy = means.accuracy;
  all.f1 = means.f1;
  all.pearson = means.pearson;
  return all;
}

}  // namespace gantry
