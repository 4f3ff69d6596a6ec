// Searches the best of several orders; the weight gradients of each are filled in by several rules.
#pragma once

#include <functional>
#include <vector>

#include "gantry/schedule/generators/earliest_rank.h"
#include "gantry/schedule/generators/fill_weights.h"

namespace gantry::schedule {

// Executes a bounded number of actions: large pipelines try fewer orders.
class FillSearch {
 public:
  explicit FillSearch(const OrderOptions& options) : options_(options) {}

  // Discards, from now on, schedules that are longer than this one (by the longest rank or in total) or that hold more
  // activations. The schedule itself is the first result.
  void begin_with(Schedule schedule);

  // Keeps the best filling of the order if it is better than the result so far, and returns true then. A complete
  // schedule is compared as it is.
  bool try_order(const Schedule& order);
  void try_finished(Schedule schedule);
  void try_orders(const std::vector<std::function<Schedule()>>& orders);

  // Swaps adjacent actions of the best order. At first it also accepts swaps that make the schedule slightly longer,
  // which finds orders that no single improving swap reaches.
  void improve_by_swaps();

  void allow(const OrderOptions& options) { options_ = options; }  // limit from now on
  bool exhausted() const;                                          // maximum number of its steps
  std::size_t steps() const { return steps_; }                     // actions executed so far
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

// The order without its W actions.
Schedule without_weights(Schedule schedule);

}  // namespace gantry::schedule
