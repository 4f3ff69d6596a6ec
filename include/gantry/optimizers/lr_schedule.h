// The learning rate as a function of the step.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>

#include "gantry/core/config.h"

namespace gantry {

// The learning rates of a run: a schedule of the YAML file by its name, or any function of step and parameter group.
class LrSchedule {
 public:
  using Rate = std::function<double(std::int64_t step, std::size_t group)>;

  // `rate` returns the learning rate of optimizer step `step`, counted from 1, for parameter group `group` of the
  // optimizer, counted from 0. It must return the same values on all ranks.
  template <class Function>
  requires std::is_invocable_r_v<double, const Function&, std::int64_t, std::size_t> LrSchedule(Function rate)
      : rate_(std::move(rate)) {}  // NOLINT(google-explicit-constructor)

  // The schedule `config.name` of a run of `steps` steps. `peak` is its highest rate; a parameter group with a rate of
  // its own keeps the ratio of that rate to the optimizer's default. Without `peak`, the rates with which the optimizer
  // was made are the peaks of their groups. warmup_ratio is a share of `steps`.
  //
  // Step k has the rate of PyTorch's and transformers' schedulers at index k - 1: the first step of a warm-up has rate
  // 0, and the rate of index `steps`, the end of the decay, belongs to no step.
  LrSchedule(const LrScheduleConfig& config, std::optional<double> peak, std::int64_t steps);

  // Returns the rate of optimizer step `step` for a parameter group, before the group's ratio: a factor of the group's
  // own rate if the schedule has no peak.
  double at(std::int64_t step, std::size_t group = 0) const { return rate_(step, group); }

  // The meaning of at().
  enum class Unit {
    kRate,         // the learning rate of the group
    kDefaultRate,  // the learning rate of groups without a rate of their own
    kFactor,       // a factor of the rate with which the optimizer was made
  };
  Unit unit() const { return unit_; }

 private:
  Rate rate_;
  Unit unit_ = Unit::kRate;
};

}  // namespace gantry
