// A cluster's rates from steps that were measured.
#pragma once

#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/estimate.h"

namespace gantry::planner {

struct MeasuredStep {
  Workload workload;
  Layout layout;
  Seconds seconds;
};

// What the measured steps take beside the cluster's estimates: 1 is as estimated.
struct Calibration {
  Cluster cluster;
  double device = 1;  // the mean factor of computing
  double links = 1;   // of collectives and messages; 1 where no step has any
};

// The cluster with its devices' and links' times scaled by one factor each, and step_seconds as measured, so that the
// mean relative error of these parts is 0: shapes of curves (sizes, latencies) stay as they were measured or stated. A
// step's pipeline part follows from the others and is left out. UsageError without steps; ConfigError where a layout is
// not defined on the cluster.
Calibration calibrate(const Cluster& cluster, const std::vector<MeasuredStep>& steps);

// All times of the devices, or of the links, so many times as long.
void slow_device(Device& device, double factor);
void slow_link(Link& link, double factor);

}  // namespace gantry::planner
