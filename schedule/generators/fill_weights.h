// Weight gradients put into an order of forwards and input gradients, where they cost least.
#pragma once

#include <optional>

#include "gantry/schedule/generators/order_options.h"

namespace gantry::schedule {

struct FillRule {
  double least_gap = 0;         // of a weight gradient's time that must be idle before one fills it
  double final_gap = 0;         // the same before a row's last action, which others often wait for
  bool early_forwards = false;  // forwards move up into time that would be idle, where they don't raise the peak
  int spared = 0;               // activations of room that forwards of a rank's first stage leave when they do
};

struct FilledSchedule {
  Schedule schedule;
  Length length;
};

// `order` has F and I actions alone (or F and B, which are left as they are). Runs it in simulated time: a W goes where
// its rank would be idle, as the rule says, and where a forward needs its room. Nothing where a forward finds no room
// within options.limit, or the order does not end.
std::optional<FilledSchedule> fill_weights(const Schedule& order, const OrderOptions& options, const FillRule& rule);

}  // namespace gantry::schedule
