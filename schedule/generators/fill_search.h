// The search for the best of several orders, each with its weight gradients filled in by several rules.
#pragma once

#include <functional>
#include <vector>

#include "gantry/schedule/generators/earliest_rank.h"
#include "gantry/schedule/generators/fill_weights.h"

namespace gantry::schedule {

// Runs a bounded number of actions: large pipelines try fewer orders.
class FillSearch {
 public:
  explicit FillSearch(const OrderOptions& options) : options_(options) {}

  // From here on nothing is kept that is longer than this schedule, by the longest rank or as a whole, or holds more
  // activations. The schedule itself is the first that is found.
  void begin_with(Schedule schedule);

  // Keeps the order's best filling if it is better than what was found; true if so. A finished schedule is compared as
  // it is.
  bool try_order(const Schedule& order);
  void try_finished(Schedule schedule);
  void try_orders(const std::vector<std::function<Schedule()>>& orders);

  // Swaps neighbouring actions of the best order; at first also where it makes the schedule a little longer, which
  // finds ways that no single swap would.
  void improve_by_swaps();

  void allow(const OrderOptions& options) { options_ = options; }  // from here on
  bool exhausted() const;                                          // of its steps
  std::size_t steps() const { return steps_; }                     // actions run so far
  const Schedule& best() const { return best_; }

 private:
  double try_rule(const Schedule& order, const FillRule& rule);
  bool improves(const Length& length) const;

  OrderOptions options_;
  Schedule best_;
  FillRule best_rule_;
  Length shortest_{EarliestRank::kNever, EarliestRank::kNever, EarliestRank::kNever};
  Length bound_ = shortest_;
  std::size_t steps_ = 0;
};

// The same order without its W actions.
Schedule without_weights(Schedule schedule);

}  // namespace gantry::schedule
