// What a rank's steps spend their time on, in the planner's parts.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "gantry/planner/estimate.h"
#include "gantry/profiling/communication_meter.h"

namespace gantry {

class StepParts {
 public:
  // `reduces_within`: gradients or parameters travel over replicas within actions (zero 2 and 3). `has_pipeline`: ranks
  // wait for each other's last actions in the collectives of all, which is the pipeline's bubble.
  StepParts(bool reduces_within, bool has_pipeline) : reduces_within_(reduces_within), has_pipeline_(has_pipeline) {}

  // The step that has ended. `busy`: seconds of its compute actions, with the collectives within them. `counts`: the
  // meter's since the run began.
  void add(double step_seconds, double busy, const std::vector<CommunicationCount>& counts);
  // A step that was given up: what it communicated counts nowhere.
  void give_up(const std::vector<CommunicationCount>& counts) { seen_ = by_part(counts); }

  // The mean of the last steps, without the run's first one where there are others. What is neither computed nor
  // communicated by an axis of the layout (data, the optimizer, norms over all ranks) is `optimizer`.
  planner::Seconds mean() const;
  std::size_t steps() const { return last_.size(); }

 private:
  planner::Seconds by_part(const std::vector<CommunicationCount>& counts) const;

  bool reduces_within_, has_pipeline_;
  planner::Seconds seen_;  // of communication, up to the last step
  std::deque<planner::Seconds> last_;
  std::int64_t added_ = 0;
};

}  // namespace gantry
