// Inserts weight gradients into an order of forwards and input gradients, at the positions where they cost least.
#pragma once

#include <optional>

#include "gantry/schedule/generators/order_options.h"

namespace gantry::schedule {

struct FillRule {
  double least_gap = 0;         // share of a weight gradient's time that must be idle before it is inserted
  double final_gap = 0;         // the same before the last action of a row, which other ranks often wait for
  bool early_forwards = false;  // forwards move into idle time if that does not raise the peak
  int spared = 0;               // free activations that forwards of a rank's first stage leave when they move
};

struct FilledSchedule {
  Schedule schedule;
  Length length;
};

// `order` contains only F and I actions (or F and B, which remain unchanged). Executes it in simulated time: a W is
// inserted if its rank would be idle, by the rule, and if a forward needs its memory. Returns nothing if a forward
// exceeds options.limit, or if the order cannot finish.
std::optional<FilledSchedule> fill_weights(const Schedule& order, const OrderOptions& options, const FillRule& rule);

}  // namespace gantry::schedule
