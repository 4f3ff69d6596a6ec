#include "gantry/optimizers/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// The part of a schedule between its warm-up and the end of the run.
struct RateDecay {
  const LrScheduleConfig& config;
  std::int64_t warmup, steps;

  // The fraction of the decay that is complete at `index`, if the decay begins at index `from`.
  double progress(std::int64_t index, std::int64_t from) const {
    const double length = std::max<double>(1, static_cast<double>(steps - from));
    return std::clamp(static_cast<double>(index - from) / length, 0.0, 1.0);
  }
};

double constant_rate(const RateDecay& /*decay*/, std::int64_t /*index*/) { return 1; }

double linear_rate(const RateDecay& decay, std::int64_t index) { return 1 - decay.progress(index, decay.warmup); }

// One cycle of SGDR (arXiv 1608.03983).
double cosine_rate(const RateDecay& decay, std::int64_t index) {
  return 0.5 * (1 + std::cos(std::numbers::pi * decay.progress(index, decay.warmup)));
}

double cosine_rate_with_restarts(const RateDecay& decay, std::int64_t index) {
  const double done = decay.progress(index, decay.warmup);
  return done == 1 ? 0 : 0.5 * (1 + std::cos(std::numbers::pi * std::fmod(decay.config.cycles * done, 1.0)));
}

double wsd_rate(const RateDecay& decay, std::int64_t index) {
  const std::int64_t from = std::max(decay.warmup, decay.steps - decay.config.decay_steps);
  return index < from || decay.config.decay_steps == 0 ? 1 : 1 - decay.progress(index, from);
}

double polynomial_rate(const RateDecay& decay, std::int64_t index) {
  return std::pow(1 - decay.progress(index, decay.warmup), decay.config.power);
}

// 1 / sqrt(index), scaled to 1 at the end of the warm-up. Without a warm-up, scaled as after one of 10,000
// steps.
double inverse_sqrt_rate(const RateDecay& decay, std::int64_t index) {
  const double scale = decay.warmup > 0 ? static_cast<double>(decay.warmup) : 10'000;
  return 1 / std::sqrt((static_cast<double>(index - decay.warmup) + scale) / scale);
}

double piecewise_rate(const RateDecay& decay, std::int64_t index) {
  const auto& [milestones, factors] = std::tie(decay.config.milestones, decay.config.factors);
  const auto passed = std::upper_bound(milestones.begin(), milestones.end(), index) - milestones.begin();
  return passed == 0 ? 1 : factors.at(passed - 1);
}

struct NamedSchedule {
  const char* name;
  double (*share)(const RateDecay& decay, std::int64_t index);  // 0: the lowest rate, 1: the peak
};

constexpr NamedSchedule kSchedules[] = {
    {"constant", constant_rate},
    {"linear", linear_rate},
    {"cosine", cosine_rate},
    {"cosine_with_restarts", cosine_rate_with_restarts},
    {"wsd", wsd_rate},
    {"polynomial", polynomial_rate},
    {"inverse_sqrt", inverse_sqrt_rate},
    {"piecewise", piecewise_rate},
};

const NamedSchedule& schedule_of(const std::string& name) {
  std::string names;
  for (const NamedSchedule& known : kSchedules) {
    if (name == known.name) return known;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  throw ConfigError({"lr_schedule.name", "\"" + name + "\" is not a schedule", "one of " + names,
                     "choose one of these, or pass a function of the step to LrSchedule"});
}

}  // namespace

LrSchedule::LrSchedule(const LrScheduleConfig& config, std::optional<double> peak, std::int64_t steps)
    : unit_(peak ? Unit::kDefaultRate : Unit::kFactor) {
  const NamedSchedule& named = schedule_of(config.name);
  if (!peak && config.min_lr > 0)
    throw ConfigError({"lr_schedule.min_lr", "the peaks are the rates of the program's own optimizer",
                       "a ratio of them", "set lr_schedule.min_lr_ratio instead"});
  const std::int64_t warmup =
      config.warmup_ratio > 0 ? static_cast<std::int64_t>(std::ceil(config.warmup_ratio * static_cast<double>(steps)))
                              : config.warmup_steps;
  const double highest = peak.value_or(1);
  const double lowest = config.min_lr_ratio > 0 ? config.min_lr_ratio * highest : config.min_lr;
  rate_ = [config, share = named.share, warmup, steps, highest, lowest](std::int64_t step, std::size_t /*group*/) {
    const std::int64_t index = step - 1;
    if (index < warmup) return highest * static_cast<double>(index) / static_cast<double>(warmup);
    return lowest + (highest - lowest) * share({config, warmup, steps}, index);
  };
}

}  // namespace gantry
