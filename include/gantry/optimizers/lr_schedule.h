// The learning rate as a pure function of the step.
#pragma once

#include <cstdint>

#include "gantry/core/config.h"

namespace gantry {

struct LrSchedule {
  LrScheduleConfig config;
  double lr = 0;           // the peak
  std::int64_t steps = 0;  // of the whole run

  // Of optimizer step `step`, counted from 1. Warm-up rises linearly and reaches the peak at step warmup_steps; cosine
  // then falls to min_lr at the last step (SGDR, arXiv 1608.03983, one cycle).
  double at(std::int64_t step) const;
};

}  // namespace gantry
