// Writes report.json: the content of a run's report in addition to its metrics. docs/monitoring.md lists the keys.
#pragma once

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

// Measurements of this rank for the report.
struct RunFacts {
  std::int64_t step = 0;                 // the last step that ran
  std::optional<StepPictures> pictures;  // timelines of that step
  // Communication of this rank over `counted_steps` steps.
  std::vector<CommunicationCount> counts;
  std::int64_t counted_steps = 0;
  std::vector<OperatorCost> operators;  // operators of rank 0 in the last profiled cycle
  planner::Seconds parts;               // parts of this rank's mean step time, in seconds
  std::int64_t timed_steps = 0;         // number of steps in that mean
  std::vector<std::int64_t> peaks;      // peak bytes of tensors, by rank
  // The cluster for the planner's predictions, with at least as many ranks as the job. Empty: no predictions.
  std::optional<planner::Cluster> cluster;
};

// Returns the bytes of weights, gradients and optimizer state that a rank holds per parameter; see
// docs/layouts.md.
double state_bytes_per_parameter(const Config& config, int replicas);

// Writes config.output/report.json. Collective over the world. On rank 0, returns a description of the part of a step
// that differs most from the planner's prediction; "" without a cluster, and on other ranks.
std::string write_run_report(World& world, Plugin& plugin, Boosted& boosted, const RunFacts& facts);

// Writes FOLDER/report.html for a run that has failed with the error line `failure`, from the files as they are;
// report.json keeps the line.
void write_last_report(const std::string& folder, const std::string& failure);

}  // namespace gantry
