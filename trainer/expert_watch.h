// What a run says of its experts while it trains: which starve, and what their ranks send each other.
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

// Finds experts that starve: over kSteps steps they have had less than one in kShare of the mean of their layer.
class ExpertWatch {
 public:
  static constexpr int kSteps = 10, kShare = 20;

  // The warning of this step, a line without its end: empty where no further expert starves. One that has been named is
  // not named again before it has recovered. Where a layer's experts have had fewer than kShare tokens each, nothing is
  // said of it.
  std::string add(const StepMetrics& metrics);

 private:
  std::string judged(std::int64_t step);

  std::vector<ExpertLoad> sums_;  // of the steps since the last judgement
  int steps_ = 0;
  std::set<std::pair<std::size_t, std::size_t>> starving_;  // {layer, expert}
};

// The all-to-alls between ranks that share experts, of each step.
class ExpertTraffic {
 public:
  // Neither is owned; the meter counts what this rank communicates.
  ExpertTraffic(const CommunicationMeter& meter, const ProcessGroupMesh& mesh) : meter_(meter), mesh_(mesh) {}

  // Sets what was counted since the last call, as means over the ranks. Collective over the world where ranks share
  // experts.
  void set(StepMetrics& metrics);

 private:
  const CommunicationMeter& meter_;
  const ProcessGroupMesh& mesh_;
  double bytes_ = 0, seconds_ = 0;  // of all steps before
};

}  // namespace gantry
