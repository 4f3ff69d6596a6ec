// Monitoring of the experts during a run: warnings about starving experts, and the traffic between expert
// ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/profiling/communication_meter.h"
#include "gantry/trainer/metrics.h"

namespace gantry {

// Finds starving experts: those that received less than 1 / kShare of the mean of their layer over kSteps
// steps.
class ExpertWatch {
 public:
  static constexpr int kSteps = 10, kShare = 20;

  // Returns the warning of this step, as a line without a line end. Empty if no further expert starves. An
  // expert is not reported again before it has recovered. A layer with fewer than kShare tokens per expert is
  // ignored.
  std::string add(const StepMetrics& metrics);

 private:
  std::string judged(std::int64_t step);

  std::vector<ExpertLoad> sums_;  // tokens since the last check
  int steps_ = 0;
  std::set<std::pair<std::size_t, std::size_t>> starving_;  // {layer, expert}
};

// Measures the all-to-alls between expert-parallel ranks in each step.
class ExpertTraffic {
 public:
  // Both arguments must outlive this object. The meter counts the communication of this rank.
  ExpertTraffic(const CommunicationMeter& meter, const ProcessGroupMesh& mesh) : meter_(meter), mesh_(mesh) {}

  // Sets the bytes and seconds since the last call, as means over the ranks. Collective over the world if
  // experts are distributed over ranks.
  void set(StepMetrics& metrics);

 private:
  const CommunicationMeter& meter_;
  const ProcessGroupMesh& mesh_;
  double bytes_ = 0, seconds_ = 0;  // sums over all earlier steps
};

}  // namespace gantry
