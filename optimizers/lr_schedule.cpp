#include "gantry/optimizers/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gantry {

double LrSchedule::at(std::int64_t step) const {
  if (step < config.warmup_steps) return lr * static_cast<double>(step) / config.warmup_steps;
  if (config.name == "constant") return lr;
  const std::int64_t falls_from = config.name == "wsd"
                                      ? std::max<std::int64_t>(config.warmup_steps, steps - config.decay_steps)
                                      : config.warmup_steps;
  const double whole = std::max<double>(1, static_cast<double>(steps - falls_from));
  const double done = std::clamp(static_cast<double>(step - falls_from) / whole, 0.0, 1.0);
  const double left = config.name == "cosine" ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  return config.min_lr + (lr - config.min_lr) * left;
}

}  // namespace gantry
