// The dynamic loss scale of float16 (Micikevicius et al., arXiv 1710.03740): halved after several overflows
// in a row, doubled after many steps without one. Every rank sees the same norms, so all ranks keep the same
// scale without communication.
#pragma once

#include <algorithm>

#include "gantry/core/config.h"

namespace gantry {

class LossScaler {
 public:
  explicit LossScaler(const LossScaleConfig& config) : config_(config), state_{config.initial} {}

  double scale() const { return state_.scale; }

  void overflowed() {
    state_.good_steps = 0;
    if (++state_.overflows < config_.hysteresis) return;
    state_.overflows = 0;
    state_.scale = std::max(1.0, state_.scale / 2);
  }
  void stepped() {
    state_.overflows = 0;
    if (++state_.good_steps < config_.growth_interval) return;
    state_.good_steps = 0;
    state_.scale *= 2;
  }

  // The state from which a resumed run continues.
  struct State {
    double scale;
    int good_steps = 0;  // since the last overflow or doubling
    int overflows = 0;   // in a row
  };
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  LossScaleConfig config_;
  State state_;
};

}  // namespace gantry
