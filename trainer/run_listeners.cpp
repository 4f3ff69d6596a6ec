#include "gantry/trainer/run_listeners.h"

#include <utility>

#include "gantry/trainer/metrics_file.h"
#include "gantry/trainer/tensorboard_file.h"

namespace gantry {

template <class Metrics>
void RunListeners::publish(const Metrics& metrics, std::function<void(const Metrics&)> TrainerCallbacks::*callback) {
  if (world_.is_main()) {
    for (const auto& sink : own_sinks_) sink->write(metrics);
    for (const auto& sink : sinks_) sink->write(metrics);
  }
  for (const auto& each : callbacks_)
    if (each.*callback) (each.*callback)(metrics);
}

template <class Sink>
Sink* RunListeners::add_own(std::unique_ptr<Sink> sink) {
  Sink* added = sink.get();
  own_sinks_.push_back(std::move(sink));
  return added;
}

void RunListeners::publish(const StepMetrics& metrics) { publish(metrics, &TrainerCallbacks::on_step); }

void RunListeners::publish(const EvaluationMetrics& metrics) { publish(metrics, &TrainerCallbacks::on_evaluation); }

void RunListeners::serve(const StatusPlace& place) {
  if (world_.is_main()) live_ = add_own(std::make_unique<LiveStatus>(place, world_));
}

void RunListeners::set_steps(std::int64_t steps) {
  if (live_) live_->set_steps(steps);
}

void RunListeners::show_report() {
  if (live_) live_->show_report();
}

void RunListeners::open(const Config& config, std::int64_t done) {
  if (!world_.is_main()) return;
  if (!config.output.empty()) {
    add_own(std::make_unique<MetricsFile>(config.output));
    add_own(std::make_unique<TensorBoardFile>(config.output, done));
  }
  progress_ = add_own(std::make_unique<ProgressLine>(done + 1, config.train.steps, config.train.log_every));
}

void RunListeners::tell_of_save(std::int64_t step) const {
  for (const auto& each : callbacks_)
    if (each.on_save) each.on_save(step);
}

void RunListeners::tell_of_end(const RunEnd& end) const {
  for (const auto& each : callbacks_)
    if (each.on_end) each.on_end(end);
}

void RunListeners::clear_progress() {
  if (progress_) progress_->clear();
}

void RunListeners::end_progress() {
  std::erase_if(own_sinks_, [this](const auto& sink) { return sink.get() == progress_; });
  progress_ = nullptr;
}

}  // namespace gantry
