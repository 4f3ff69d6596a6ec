#include "gantry/trainer/metric_scalars.h"

#include <cmath>

namespace gantry {

MetricScalars scalars_of(const StepMetrics& metrics) {
  MetricScalars scalars = {{"train/loss", metrics.loss},
                           {"train/grad_norm", metrics.grad_norm},
                           {"train/lr", metrics.lr},
                           {"speed/tokens_per_second", static_cast<double>(metrics.tokens) / metrics.step_seconds},
                           {"speed/step_seconds", metrics.step_seconds},
                           {"speed/bubble", metrics.bubble}};
  if (metrics.images > 0) scalars.emplace_back("train/images", static_cast<double>(metrics.images));
  if (metrics.rewards)
    for (const auto& [name, value] : named_values(*metrics.rewards)) scalars.emplace_back("train/" + name, value);
  for (const auto& [name, loss] : metrics.added_losses) scalars.emplace_back("train/loss/" + name, loss);
  for (const auto& load : metrics.experts.layers)
    scalars.emplace_back("experts/largest_over_mean/" + load.router, load.largest_over_mean());
  if (!metrics.experts.layers.empty())
    scalars.insert(scalars.end(), {{"experts/dropped", static_cast<double>(metrics.experts.dropped)},
                                   {"experts/all_to_all_bytes", metrics.all_to_all_bytes},
                                   {"experts/all_to_all_seconds", metrics.all_to_all_seconds}});
  return scalars;
}

MetricScalars scalars_of(const EvaluationMetrics& metrics) {
  MetricScalars scalars = {{"evaluation/loss", metrics.loss}};
  if (!metrics.rewards) scalars.emplace_back("evaluation/perplexity", std::exp(metrics.loss));
  if (metrics.rewards)
    for (const auto& [name, value] : named_values(*metrics.rewards)) scalars.emplace_back("evaluation/" + name, value);
  if (metrics.pearson) scalars.emplace_back("evaluation/pearson", *metrics.pearson);
  if (metrics.accuracy) scalars.emplace_back("evaluation/accuracy", *metrics.accuracy);
  if (metrics.f1) scalars.emplace_back("evaluation/f1", *metrics.f1);
  if (metrics.choices) {
    scalars.emplace_back("evaluation/accuracy", metrics.choices->accuracy);
    scalars.emplace_back("evaluation/normalised_accuracy", metrics.choices->normalised_accuracy);
  }
  return scalars;
}

}  // namespace gantry
