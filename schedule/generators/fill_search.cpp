#include "gantry/schedule/generators/fill_search.h"

#include <algorithm>
#include <array>
#include <random>

namespace gantry::schedule {
namespace {

// Total number of actions that a search may execute.
constexpr std::size_t kMostSteps = 1'500'000;
// Limits of the search by swaps: the number of swaps, and how much longer, in forwards, a step may make the schedule at
// first.
constexpr std::size_t kTriesPerAction = 20;
constexpr double kMostWorse = 0.05;

constexpr std::array<FillRule, 12> kRules = {{{.early_forwards = false},
                                              {.early_forwards = true},
                                              {.early_forwards = true, .spared = 1},
                                              {.early_forwards = true, .spared = 2},
                                              {.least_gap = 0, .final_gap = 1},
                                              {.least_gap = 0.5, .final_gap = 1},
                                              {.least_gap = 0.25, .final_gap = 0.25},
                                              {.least_gap = 0.5, .final_gap = 0.5},
                                              {.least_gap = 0.75, .final_gap = 0.75},
                                              {.least_gap = 1, .final_gap = 1},
                                              {.least_gap = 2, .final_gap = 2},
                                              {.least_gap = 1e9, .final_gap = 1e9}}};
constexpr std::size_t kRulesWithoutGap = 4;  // index of the first of both actions

}  // namespace

Schedule without_weights(Schedule schedule) {
  for (auto& row : schedule.actions)
    std::erase_if(row, [](const Action& action) { return action.kind == ActionKind::kWeightGradient; });
  return schedule;
}

bool FillSearch::exhausted() const { return steps_ > kMostSteps; }

bool FillSearch::improves(const Length& length) const {
  return length < shortest_ && length[0] <= bound_[0] && length[1] <= bound_[1] && length[2] <= bound_[2];
}

void FillSearch::begin_with(Schedule schedule) {
  shortest_ = bound_ = length_of(schedule, options_);
  best_ = std::move(schedule);
}

bool FillSearch::try_order(const Schedule& order) {
  const Length before = shortest_;
  // Without weight gradients there is nothing to fill in.
  const std::size_t rules = options_.split_backward ? kRules.size() : kRulesWithoutGap;
  for (std::size_t i = 0; i < rules; ++i)
    if (try_rule(order, kRules[i]) == EarliestRank::kNever && !kRules[i].early_forwards)
      break;  // nor by any other rule
  return shortest_ < before;
}

// The time of the longest rank; kNever if the order exceeds the memory limit.
double FillSearch::try_rule(const Schedule& order, const FillRule& rule) {
  auto filled = fill_weights(order, options_, rule);
  for (const auto& row : order.actions) steps_ += row.size();
  if (!filled) return EarliestRank::kNever;
  const double longest = filled->length[0];
  if (improves(filled->length)) {
    shortest_ = filled->length;
    best_ = std::move(filled->schedule);
    best_rule_ = rule;
  }
  return longest;
}

void FillSearch::improve_by_swaps() {
  Schedule order = without_weights(best_);
  FillRule rule = best_rule_;
  double current = shortest_[0];
  std::size_t actions = 0;
  for (const auto& row : order.actions) actions += row.size();
  const std::size_t tries = kTriesPerAction * actions;
  std::minstd_rand random(1);  // fixed seed: the same schedule every time
  for (std::size_t tried = 0; tried < tries && !exhausted(); ++tried) {
    auto& row = order.actions[random() % order.actions.size()];
    if (row.size() < 2) continue;
    const std::size_t i = random() % (row.size() - 1);
    if (row[i].kind == row[i + 1].kind || row[i].microbatch == row[i + 1].microbatch) continue;
    const FillRule other = random() % 8 == 0 ? kRules[random() % kRules.size()] : rule;
    std::swap(row[i], row[i + 1]);
    const double left = 1 - static_cast<double>(tried) / static_cast<double>(tries);
    const double length = try_rule(order, other);
    if (length <= current + kMostWorse * left * options_.forward)
      current = length, rule = other;
    else
      std::swap(row[i], row[i + 1]);
  }
}

void FillSearch::try_finished(Schedule schedule) {
  const Length length = length_of(schedule, options_);
  if (!improves(length)) return;
  shortest_ = length;
  best_ = std::move(schedule);
}

void FillSearch::try_orders(const std::vector<std::function<Schedule()>>& orders) {
  for (const auto& make : orders) {
    if (exhausted()) return;
    try_order(make());
  }
}

}  // namespace gantry::schedule
