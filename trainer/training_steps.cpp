#include "gantry/trainer/training_steps.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>
#include <utility>

#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/error.h"
#include "gantry/core/sharding/zero_level.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/optimizers/gradient_norm.h"

namespace gantry {

TrainingSteps::TrainingSteps(const World& world, const Config& config, Booster& booster, const MemoryMeter& memory,
                             CommunicationMeter& meter, RunListeners& listeners)
    : world_(world),
      booster_(booster),
      memory_(memory),
      meter_(meter),
      listeners_(listeners),
      timeline_(booster.plugin()),
      parts_(zero_level(config.parallel.zero).gradients, booster.mesh().size(axis::kPipeline) > 1),
      traffic_(meter, booster.mesh()) {}

std::optional<StepMetrics> TrainingSteps::run(std::int64_t step, Boosted& boosted, const std::function<bool()>& stops) {
  const double start = steady_seconds();
  const LoaderPlace place = boosted.loader->place();
  meter_.resume();
  Batch batch = boosted.loader->next();
  listeners_.tell_of_batch(step, batch);
  if (prepare_) batch = prepare_(std::move(batch));
  if (objective_.rewards) objective_.rewards->clear();
  timeline_.begin(boosted);
  const StepResult result = booster_.execute_pipeline(batch, boosted,
                                                      {.return_loss = true,
                                                       .broadcast_loss = true,
                                                       .stops = stops,
                                                       .before_backward = listeners_.before_backward(step)});
  if (result.aborted) {
    give_up(place, boosted);
    return std::nullopt;
  }
  timeline_.end(batch.samples);
  const double norm = offer_gradients(step, boosted);
  require_finite(step, *result.loss, norm, boosted);
  listeners_.tell_before_step(step);
  StepMetrics metrics{.step = step,
                      .loss = *result.loss,
                      .added_losses = result.added_losses,
                      .grad_norm = norm,
                      .tokens = result.tokens,
                      .images = result.images,
                      .step_seconds = steady_seconds() - start,
                      .peak_memory_bytes = {},
                      .experts = result.experts};
  const bool stepped = take_ ? take_(metrics) : boosted.optimizer->step();
  boosted.optimizer->zero_grad();
  if (!stepped) warn_of_skipped(step, norm, boosted);
  meter_.pause();
  ++counted_;
  const double seconds = steady_seconds() - start;
  parts_.add(seconds, timeline_.busy(), meter_.counts());
  peaks_ = all_gather_numbers(booster_.mesh().world_group(), memory_.peak_bytes());
  metrics.lr = boosted.optimizer->lr();
  metrics.step_seconds = seconds;
  metrics.peak_memory_bytes = peaks_;
  metrics.bubble = timeline_.bubble();
  metrics.predicted_bubble = timeline_.predicted_bubble();
  if (objective_.rewards) metrics.rewards = rewards_of_step();
  traffic_.set(metrics);
  return metrics;
}

RewardMetrics TrainingSteps::rewards_of_step() const {
  RewardMetrics rewards = objective_.rewards->means(booster_.mesh().world_group());
  if (objective_.step && objective_.reference) rewards.divergence = objective_.step->divergence;
  return rewards;
}

double TrainingSteps::offer_gradients(std::int64_t step, Boosted& boosted) {
  BoostedOptimizer& optimizer = *boosted.optimizer;
  const double norm = optimizer.grad_norm();
  if (!listeners_.reads_gradients()) return norm;
  StepGradients offered{.step = step, .norm = norm, .gradients = {}};
  const GradientBuffers& buffers = optimizer.gradients();
  std::set<const void*> seen;  // a tied parameter is in the list once per name
  for (std::size_t i = 0; i < buffers.parameters().size(); ++i) {
    const HeldTensor& held = buffers.parameters()[i];
    if (!buffers.steps(i) || !seen.insert(held.tensor.unsafeGetTensorImpl()).second) continue;
    offered.gradients.emplace_back(held.placement.name,
                                   buffers.sharded(i) ? buffers.owned_gradient(i) : buffers.gradient(i));
  }
  const torch::NoGradGuard no_grad;
  listeners_.tell_of_gradients(offered);
  // Clears the cached norm, because callbacks may have changed gradients.
  optimizer.set_state(BoostedOptimizer::Gradients::kSummed);
  return optimizer.grad_norm();
}

void TrainingSteps::give_up(const LoaderPlace& place, Boosted& boosted) {
  boosted.loader->seek(place);
  timeline_.give_up();
  meter_.pause();
  parts_.give_up(meter_.counts());
}

void TrainingSteps::require_finite(std::int64_t step, double loss, double norm, const Boosted& boosted) const {
  if ((std::isfinite(loss) && std::isfinite(norm)) || boosted.optimizer->skips_non_finite()) return;
  const std::string where = first_non_finite(boosted.optimizer->gradients(), booster_.mesh());
  throw NumericalError({fmt::format("step {}", step),
                        fmt::format("the loss is {} and the gradient norm is {}{}", loss, norm,
                                    where.empty() ? "" : ", first in " + where),
                        "finite numbers",
                        step == 1 ? "check the batch, the initial weights and the criterion: no step has changed the "
                                    "weights yet"
                                  : "lower the learning rate, or clip with optimizer.clip_grad_norm"});
}

void TrainingSteps::warn_of_skipped(std::int64_t step, double norm, const Boosted& boosted) const {
  if (!world_.is_main()) return;
  listeners_.clear_progress();
  print_warning(fmt::format("step {} is skipped: gradient norm {}, loss scale now {}", step, norm,
                            boosted.optimizer->loss_scale()));
}

std::optional<StepPictures> TrainingSteps::pictures(const Boosted& boosted) const {
  return timeline_.pictures(boosted.model->stage_module_unmaterialized().layer_ranges());
}

RunFacts TrainingSteps::facts(const Boosted& boosted) const {
  return {.pictures = pictures(boosted),
          .counts = meter_.counts(),
          .counted_steps = std::max<std::int64_t>(counted_, 1),
          .operators = {},
          .parts = parts_.mean(),
          .timed_steps = static_cast<std::int64_t>(parts_.steps()),
          .peaks = peaks_,
          .cluster = {}};
}

}  // namespace gantry
