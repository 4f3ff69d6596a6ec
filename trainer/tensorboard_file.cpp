#include "gantry/trainer/tensorboard_file.h"

#include <cmath>

#include "gantry/trainer/report/event_file.h"

namespace gantry {

TensorBoardFile::TensorBoardFile(const std::string& output, std::int64_t done)
    : events_(std::make_unique<EventFile>(output + "/tensorboard", done > 0 ? done + 1 : 0)) {}

TensorBoardFile::~TensorBoardFile() = default;

void TensorBoardFile::write(const StepMetrics& metrics) {
  std::vector<std::pair<std::string, double>> scalars = {
      {"train/loss", metrics.loss},
      {"train/grad_norm", metrics.grad_norm},
      {"train/lr", metrics.lr},
      {"speed/tokens_per_second", static_cast<double>(metrics.tokens) / metrics.step_seconds},
      {"speed/step_seconds", metrics.step_seconds},
      {"speed/bubble", metrics.bubble}};
  if (metrics.rewards)
    for (const auto& [name, value] : named_values(*metrics.rewards)) scalars.emplace_back("train/" + name, value);
  for (const auto& [name, loss] : metrics.added_losses) scalars.emplace_back("train/loss/" + name, loss);
  for (const auto& load : metrics.experts.layers)
    scalars.emplace_back("experts/largest_over_mean/" + load.router, load.largest_over_mean());
  if (!metrics.experts.layers.empty())
    scalars.insert(scalars.end(), {{"experts/dropped", static_cast<double>(metrics.experts.dropped)},
                                   {"experts/all_to_all_bytes", metrics.all_to_all_bytes},
                                   {"experts/all_to_all_seconds", metrics.all_to_all_seconds}});
  events_->write(metrics.step, scalars);
}

void TensorBoardFile::write(const EvaluationMetrics& metrics) {
  events_->write(metrics.step, {{"evaluation/loss", metrics.loss}, {"evaluation/perplexity", std::exp(metrics.loss)}});
  if (metrics.pearson) events_->write(metrics.step, {{"evaluation/pearson", *metrics.pearson}});
  if (metrics.accuracy) events_->write(metrics.step, {{"evaluation/accuracy", *metrics.accuracy}});
  if (metrics.f1) events_->write(metrics.step, {{"evaluation/f1", *metrics.f1}});
  if (metrics.choices)
    events_->write(metrics.step, {{"evaluation/accuracy", metrics.choices->accuracy},
                                  {"evaluation/normalised_accuracy", metrics.choices->normalised_accuracy}});
}

}  // namespace gantry
