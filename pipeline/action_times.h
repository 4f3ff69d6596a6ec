// When the actions of a step ran on this rank: on the CPU as the host did them; on a device between two of its events,
// since the host is done with an action long before the device is.
#pragma once

#include <memory>
#include <vector>

#include "gantry/schedule/measured.h"
#include "gantry/tensors/tensor.h"

namespace gantry::schedule {

class ActionTimes {
 public:
  virtual ~ActionTimes() = default;

  // Around each action, by whoever runs it, on the stream that it computes on.
  virtual void begin() = 0;
  virtual void end(const Action& action) = 0;
  // The actions since the last take(), in seconds on the host's steady clock. A device's have to be over, as they are
  // after a step has read back its loss: else this waits for them.
  virtual std::vector<TimedAction> take() = 0;
};

std::unique_ptr<ActionTimes> action_times(torch::Device device);

}  // namespace gantry::schedule
