// The dynamic loss scale of float16 (Micikevicius et al., arXiv 1710.03740): halved after some overflows in a row,
// doubled after many steps without one. A value: every rank sees the same norms, so all keep the same scale.
#pragma once

#include <algorithm>

#include "gantry/core/config.h"

namespace gantry {

class LossScaler {
 public:
  explicit LossScaler(const LossScaleConfig& config) : config_(config), scale_(config.initial) {}

  double scale() const { return scale_; }
  void set_scale(double scale) { scale_ = scale; }

  void overflowed() {
    good_steps_ = 0;
    if (++overflows_ < config_.hysteresis) return;
    overflows_ = 0;
    scale_ = std::max(1.0, scale_ / 2);
  }
  void stepped() {
    overflows_ = 0;
    if (++good_steps_ < config_.growth_interval) return;
    good_steps_ = 0;
    scale_ *= 2;
  }

 private:
  LossScaleConfig config_;
  double scale_;
  int good_steps_ = 0;
  int overflows_ = 0;  // in a row
};

}  // namespace gantry
