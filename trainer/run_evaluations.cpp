#include "gantry/trainer/run_evaluations.h"

#include <fmt/format.h>
#include <utility>

namespace gantry {

RunEvaluations::RunEvaluations(const World& world, const Config& config, Booster& booster, const RunStops& stops,
                               HeldOutRecord& record, std::function<void()> before_print)
    : world_(world),
      config_(config),
      booster_(booster),
      stops_(stops),
      record_(record),
      before_print_(std::move(before_print)) {}

void RunEvaluations::prepare(std::shared_ptr<DataLoader> held_out, Predictions predictions, PrepareBatch prepare,
                             std::shared_ptr<RewardMeter> rewards, const Boosted& boosted) {
  held_out_ = std::move(held_out);
  prepare_ = std::move(prepare);
  rewards_ = std::move(rewards);
  predictions_ = predictions;
  if (held_out_) booster_.distribute(*held_out_, boosted);
  choices_ = ChoiceScorer::of(config_);
  if (choices_) choices_->distribute(booster_, boosted);
  prompts_ = ContinuedPrompts::of(config_);
}

bool RunEvaluations::due_at(std::int64_t step, bool last) const {
  const int every = config_.evaluation.every;
  return held_out_ && (last || step == config_.train.steps || (every > 0 && step % every == 0));
}

std::optional<EvaluationMetrics> RunEvaluations::run(std::int64_t step, bool loss_alone, Boosted& boosted) {
  if (!config_.evaluation.ema) return measure(step, loss_alone, boosted);
  boosted.optimizer->exchange_averages();
  auto metrics = measure(step, loss_alone, boosted);
  boosted.optimizer->exchange_averages();
  return metrics;
}

std::optional<EvaluationMetrics> RunEvaluations::measure(std::int64_t step, bool loss_alone, Boosted& boosted) {
  const auto ends = [this] { return stops_.asked_to_stop(); };
  auto metrics =
      Evaluator(booster_, held_out_, predictions_, prepare_, rewards_).run(step, boosted, ends, stops_.within_step());
  if (!metrics) return std::nullopt;
  if (!loss_alone && choices_) {
    metrics->choices = choices_->run(booster_, boosted, ends, stops_.within_step());
    if (!metrics->choices) return std::nullopt;
  }
  if (!loss_alone && prompts_) metrics->samples = prompts_->make(boosted, booster_.plugin());
  record_.note(step, metrics->loss);
  return metrics;
}

bool RunEvaluations::is_out_of_patience() {
  if (config_.train.patience == 0 || record_.since_best() < config_.train.patience) return false;
  if (world_.is_main() && !std::exchange(said_impatience_, true)) {
    before_print_();
    fmt::print("no lower held-out loss in {} evaluations: the run ends\n", record_.since_best());
  }
  return true;
}

}  // namespace gantry
