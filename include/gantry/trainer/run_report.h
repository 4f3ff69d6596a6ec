// report.json: what a run's report shows beside its metrics. docs/monitoring.md has the keys.
#pragma once

#include <future>
#include <optional>
#include <string>
#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/estimate.h"
#include "gantry/plugins/plugin.h"
#include "gantry/profiling/communication_meter.h"
#include "gantry/profiling/profiler.h"
#include "gantry/trainer/timeline.h"

namespace gantry {

struct RunFacts {
  std::int64_t step = 0;                   // the last one that ran
  std::optional<StepPictures> pictures;    // of that step
  std::vector<CommunicationCount> counts;  // of this rank, over `counted_steps`
  std::int64_t counted_steps = 0;
  std::vector<OperatorCost> operators;      // rank 0's, of the last profiled cycle
  planner::Seconds parts;                   // of this rank's mean step, and
  std::int64_t timed_steps = 0;             // of how many
  std::vector<std::int64_t> peaks;          // bytes of tensors, by rank
  std::optional<planner::Cluster> cluster;  // that has the job's ranks; nothing is predicted without
};

// Bytes of weights, gradients and optimizer state per parameter that a rank holds, as docs/layouts.md has
// them.
double state_bytes_per_parameter(const Config& config, int replicas);

// Writes config.output/report.json. Collective over the world; rank 0 writes, and gets the part of a step that differs
// most from what the cluster's plan says, in words; "" without a cluster, and on other ranks.
std::string write_run_report(World& world, Plugin& plugin, Boosted& boosted, const RunFacts& facts);

// FOLDER/report.html of a run that fails, made of the files as they are; where that can't be done there is none. In a
// thread of its own, so that the failure is told at once: over MPI the process ends about half a second after that.
std::future<void> write_last_report(const std::string& folder);

}  // namespace gantry
