// Weight gradients put into an order of forwards and input gradients, where they cost least.
#pragma once

#include <optional>

#include "gantry/schedule/generators/greedy.h"

namespace gantry::schedule {

// `order` has F and I actions alone (or F and B, which are left as they are). Runs it in simulated time: a W goes where
// its rank would be idle for at least `least_gap` of its time, and where a forward needs its room. Nothing where a
// forward finds no room within options.limit, or the order does not end.
std::optional<Schedule> fill_weights(const Schedule& order, const GreedyOptions& options, double least_gap);

// The same order without its W actions.
Schedule without_weights(Schedule schedule);

// The best of several orders, each with its weight gradients filled in: the shortest longest rank, then the shortest
// whole. `found` is what is known so far, or an empty schedule.
Schedule best_filled(Schedule found, const std::vector<Schedule>& orders, const GreedyOptions& options);

}  // namespace gantry::schedule
