#include "gantry/trainer/evaluator.h"

namespace gantry {

std::optional<EvaluationMetrics> Evaluator::run(std::int64_t step, Boosted& boosted, const std::function<bool()>& ends,
                                                const std::function<bool()>& stops) {
  EvaluationMetrics all{.step = step};
  double sum = 0;
  for (std::int64_t i = 0; i < loader_->steps(); ++i) {
    if (ends && ends()) return std::nullopt;
    const StepResult result = booster_.execute_pipeline(loader_->batch(i), boosted,
                                                        {.broadcast_loss = true, .forward_only = true, .stops = stops});
    if (result.given_up) return std::nullopt;
    sum += *result.loss * static_cast<double>(result.tokens);
    all.tokens += result.tokens;
  }
  all.loss = all.tokens > 0 ? sum / static_cast<double>(all.tokens) : 0;
  return all;
}

}  // namespace gantry
