// The times at which the actions of a step ran on this rank. On the CPU they are the host's times. On a
// device they are taken from events, because the host finishes an action long before the device does.
#pragma once

#include <memory>
#include <vector>

#include "gantry/schedule/measured.h"
#include "gantry/tensors/tensor.h"

namespace gantry::schedule {

class ActionTimes {
 public:
  virtual ~ActionTimes() = default;

  // Called before and after each action, on the stream on which it computes.
  virtual void begin() = 0;
  virtual void end(const Action& action) = 0;
  // Returns the actions since the last take(), in seconds on the host's steady clock. A device must have
  // completed them, as it has once a step has read its loss back; otherwise the call waits.
  virtual std::vector<TimedAction> take() = 0;
};

std::unique_ptr<ActionTimes> action_times(torch::Device device);

}  // namespace gantry::schedule
