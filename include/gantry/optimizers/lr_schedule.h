// The learning rate as a function of the step.
#pragma once

#include <cstdint>

#include "gantry/core/config.h"

namespace gantry {

// A learning-rate schedule with its peak and the length of the run.
struct LrSchedule {
  LrScheduleConfig config;
  double lr = 0;           // the peak
  std::int64_t steps = 0;  // steps of the whole run

  // Returns the learning rate of optimizer step `step`, counted from 1. Warm-up rises linearly to the peak at step
  // warmup_steps. After that, constant keeps the peak, and linear and cosine (SGDR, arXiv 1608.03983, one cycle)
  // decrease to min_lr at the last step. wsd keeps the peak and decreases linearly to min_lr in the last decay_steps
  // steps.
  double at(std::int64_t step) const;
};

}  // namespace gantry
