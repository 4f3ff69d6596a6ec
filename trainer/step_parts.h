// Divides the time of a rank's steps into the planner's parts.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "gantry/planner/estimate.h"
#include "gantry/profiling/communication_meter.h"

namespace gantry {

class StepParts {
 public:
  // `reduces_within`: gradients or parameters are communicated between replicas within actions (zero 2 and
  // 3). `has_pipeline`: in collectives over the world, ranks also wait for the last actions of others; this
  // time is the pipeline's bubble.
  StepParts(bool reduces_within, bool has_pipeline) : reduces_within_(reduces_within), has_pipeline_(has_pipeline) {}

  // Adds a completed step. `busy`: seconds of its compute actions, including the collectives within them.
  // `counts`: the meter's counts since the start of the run.
  void add(double step_seconds, double busy, const std::vector<CommunicationCount>& counts);
  // Excludes the communication of an aborted step.
  void give_up(const std::vector<CommunicationCount>& counts) { seen_ = by_part(counts); }

  // Returns the mean of the last steps, without the run's first step if there are others. `optimizer` is the
  // remaining time, which is neither compute nor communication along an axis: reading data, the optimizer,
  // and norms over all ranks.
  planner::Seconds mean() const;
  std::size_t steps() const { return last_.size(); }

 private:
  planner::Seconds by_part(const std::vector<CommunicationCount>& counts) const;

  bool reduces_within_, has_pipeline_;
  planner::Seconds seen_;  // communication up to the last step
  std::deque<planner::Seconds> last_;
  std::int64_t added_ = 0;
};

}  // namespace gantry
