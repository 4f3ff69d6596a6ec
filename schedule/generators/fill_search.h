// The search for the best of several orders, each with its weight gradients filled in by several rules.
#pragma once

#include <functional>
#include <vector>

#include "gantry/schedule/generators/earliest_rank.h"
#include "gantry/schedule/generators/fill_weights.h"

namespace gantry::schedule {

// Large pipelines try fewer orders, so that a schedule takes less than a second.
class FillSearch {
 public:
  explicit FillSearch(const GreedyOptions& options) : options_(options) {}

  // Keeps the order's best filling if it is better than what was found; true if so. A finished schedule is compared as
  // it is.
  bool try_order(const Schedule& order);
  void try_finished(Schedule schedule);
  void try_orders(const std::vector<std::function<Schedule()>>& orders);

  // Swaps neighbouring actions of the best order; at first also where it makes the schedule a little longer, which
  // finds ways that no single swap would.
  void improve_by_swaps();

  void allow(const GreedyOptions& options) { options_ = options; }  // from here on
  bool exhausted() const;                                           // of its steps
  const Schedule& best() const { return best_; }

 private:
  double try_rule(const Schedule& order, const FillRule& rule);

  GreedyOptions options_;
  Schedule best_;
  FillRule best_rule_;
  Length shortest_{EarliestRank::kNever, EarliestRank::kNever, EarliestRank::kNever};
  std::size_t steps_ = 0;
};

// The same order without its W actions.
Schedule without_weights(Schedule schedule);

}  // namespace gantry::schedule
