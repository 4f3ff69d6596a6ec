#include "gantry/trainer/run_listeners.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/tensors/exceptions.h"
#include "gantry/trainer/metrics_file.h"
#include "gantry/trainer/tensorboard_file.h"

namespace gantry {

namespace {

constexpr int kExitCodeOfSignal = 255;  // that of wandb's client after Ctrl-C

template <class Call>
void named(const char* name, Call call) try {
  call();
} catch (const Error&) {
  throw;
} catch (...) {
  const Failure failure = describe_exception(std::current_exception());
  if (failure.exit_code != InternalError::kExitCode) throw;
  throw UserError({fmt::format("callback {}", name), fmt::format("it threw \"{}\"", failure.line), "",
                   "check the program's TrainerCallbacks"});
}

// Returns the ResourceError of `write`, for example for a full disk. Null without one.
template <class Write>
std::exception_ptr unwritten(Write write) {
  try {
    write();
  } catch (const ResourceError&) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

template <class Metrics>
void RunListeners::write(const Metrics& metrics) const {
  if (!world_.is_main()) return;
  for (const auto& sink : own_sinks_) sink->write(metrics);
  for (const auto& sink : sinks_) sink->write(metrics);
}

template <class Function, class... Values>
void RunListeners::tell(const char* name, Function TrainerCallbacks::*callback, const Values&... values) const {
  for (const auto& each : callbacks_)
    if (each.*callback) named(name, [&] { (each.*callback)(values...); });
}

template <class Sink>
Sink* RunListeners::add_own(std::unique_ptr<Sink> sink) {
  Sink* added = sink.get();
  own_sinks_.push_back(std::move(sink));
  return added;
}

std::exception_ptr RunListeners::publish(const StepMetrics& metrics) {
  const auto fault = unwritten([&] {
    write(metrics);
    if (events_) events_->step(metrics);
  });
  tell("on_step", &TrainerCallbacks::on_step, metrics);
  return fault;
}

std::exception_ptr RunListeners::publish(const EvaluationMetrics& metrics) {
  const auto fault = unwritten([&] {
    write(metrics);
    if (events_) events_->evaluation(metrics);
  });
  tell("on_evaluation", &TrainerCallbacks::on_evaluation, metrics);
  return fault;
}

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
  if (!config.output.empty()) open_files(config, done);
  if (!world_.is_main()) return;
  progress_ = add_own(std::make_unique<ProgressLine>(done + 1, config.train.steps, config.train.log_every));
}

void RunListeners::open_files(const Config& config, std::int64_t done) {
  const auto writes = [&](const char* name) { return std::ranges::count(config.train.log_files, name) > 0; };
  if (writes("events")) {
    events_ = std::make_unique<RunEvents>(config.output, world_);
    events_->start(done, config.train.steps);
  }
  if (!world_.is_main()) return;
  add_own(std::make_unique<MetricsFile>(config.output));
  if (writes("tensorboard")) add_own(std::make_unique<TensorBoardFile>(config.output, done));
  if (writes("mlflow")) mlflow_ = add_own(std::make_unique<MlflowFiles>(config, done));
  if (writes("wandb")) wandb_ = add_own(std::make_unique<WandbFiles>(config, done));
}

void RunListeners::tell_of_start(std::int64_t done) const { tell("on_start", &TrainerCallbacks::on_start, done); }

void RunListeners::tell_of_batch(std::int64_t step, const Batch& batch) const {
  tell("on_batch", &TrainerCallbacks::on_batch, step, batch);
}

std::function<void(int stage, int microbatch)> RunListeners::before_backward(std::int64_t step) const {
  if (std::ranges::none_of(callbacks_, [](const auto& each) { return static_cast<bool>(each.before_backward); }))
    return {};
  return [this, step](int stage, int microbatch) {
    tell("before_backward", &TrainerCallbacks::before_backward,
         MicrobatchBackward{.step = step, .stage = stage, .microbatch = microbatch});
  };
}

bool RunListeners::reads_gradients() const {
  return std::ranges::any_of(callbacks_, [](const auto& each) { return static_cast<bool>(each.after_backward); });
}

void RunListeners::tell_of_gradients(const StepGradients& gradients) const {
  tell("after_backward", &TrainerCallbacks::after_backward, gradients);
}

void RunListeners::tell_before_step(std::int64_t step) const {
  tell("before_step", &TrainerCallbacks::before_step, step);
}

std::exception_ptr RunListeners::tell_of_save(std::int64_t step) const {
  const auto fault = unwritten([&] {
    if (events_) events_->save(step);
  });
  tell("on_save", &TrainerCallbacks::on_save, step);
  return fault;
}

void RunListeners::tell_of_end(const RunEnd& end) const {
  using Status = MlflowFiles::Status;
  if (events_) events_->end(end);
  const bool is_stopped = end.how == RunEnd::How::kStopped;
  if (mlflow_) mlflow_->finish(is_stopped ? Status::kKilled : Status::kFinished);
  if (wandb_) wandb_->finish(is_stopped ? kExitCodeOfSignal : 0);
  tell("on_end", &TrainerCallbacks::on_end, end);
}

void RunListeners::tell_of_failure(std::exception_ptr error) noexcept {
  try {
    const Failure failure = describe_exception(std::move(error));
    if (events_) events_->failure(failure.line, failure.exit_code);
    if (mlflow_) mlflow_->finish(MlflowFiles::Status::kFailed);
    if (wandb_) wandb_->finish(failure.exit_code);
  } catch (const std::exception&) {  // it must not hide the failure
  }
}

void RunListeners::clear_progress() {
  if (progress_) progress_->clear();
}

void RunListeners::end_progress() {
  std::erase_if(own_sinks_, [this](const auto& sink) { return sink.get() == progress_; });
  progress_ = nullptr;
}

}  // namespace gantry
