#include "gantry/plugins/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gantry {

double LrSchedule::at(std::int64_t step) const {
  if (step < config.warmup_steps) return lr * static_cast<double>(step) / config.warmup_steps;
  if (config.name != "cosine") return lr;
  const double whole = std::max<double>(1, static_cast<double>(steps - config.warmup_steps));
  const double done = std::clamp(static_cast<double>(step - config.warmup_steps) / whole, 0.0, 1.0);
  return config.min_lr + (lr - config.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace gantry
