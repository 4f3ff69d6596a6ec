// Measurements and estimates: comparing a step's parts, scaling a cluster to measured steps, and fitting its constants
// to measured operations.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/estimate.h"

namespace gantry::planner {

// ---- Comparison of steps, for reports and report.json

// "compute", "tensor", ... with their seconds, in display order.
std::vector<std::pair<const char*, double>> parts_of(const Seconds& seconds);

struct StepFacts {
  Seconds seconds;                   // their sum is the step time
  std::vector<double> memory_bytes;  // peak of each pipeline rank
};
StepFacts facts_of(const Estimate& estimate);

struct Gap {
  std::string part;  // "compute", ..., or "memory" (bytes of the pipeline rank that needs most)
  double predicted = 0, measured = 0;
  double share = 0;  // the difference, as a fraction of the measured step time or memory
};
// Sorted by size, the largest first, without parts that are 0 in both.
std::vector<Gap> gaps(const StepFacts& predicted, const StepFacts& measured);
// "compute: 0.31 s predicted, 0.42 s measured".
std::string describe(const Gap& gap);

// Returns {"step_seconds", "seconds": {part: seconds}, "memory_bytes"}.
nlohmann::ordered_json to_json(const StepFacts& facts);
// The inverse of to_json(). Throws InputError with `where` for a different object.
Seconds seconds_of_json(const nlohmann::json& facts, const std::string& where);

// ---- Calibration by measured steps

struct MeasuredStep {
  Workload workload;
  Layout layout;
  Seconds seconds;
};

// A cluster with scaled rates. A factor of 1 means that measured and estimated times are equal.
struct Calibration {
  Cluster cluster;
  double device = 1;  // mean factor of computation
  double links = 1;   // mean factor of collectives and messages; 1 if no step has any
};

// Scales the times of devices and links by one factor each, and sets step_seconds to the measured value, so that the
// mean relative error of these parts is 0. Ratios between sizes and latencies do not change. The pipeline part of a
// step is not used, because it follows from the others. Throws UsageError without steps, and ConfigError if a layout is
// not possible on the cluster.
Calibration calibrate(const Cluster& cluster, const std::vector<MeasuredStep>& steps);

// Multiplies all times of a device, or of a link, by the factor.
void slow_device(Device& device, double factor);
void slow_link(Link& link, double factor);

// ---- Constants from measured operations, by least squares of relative errors

// A matrix multiplication with 2 m n k operations.
struct ProductTime {
  double flops = 0, seconds = 0;
};

// The constants of Device: a multiplication takes (flops + half_flops) / (peak * efficiency).
struct FittedProducts {
  double peak = 0;        // rate of the fastest multiplication, or the limit for large ones if it is higher
  double efficiency = 1;  // fraction of the peak that large multiplications reach; at most 1
  double half_flops = 0;
};
// Throws UsageError for less than two sizes.
FittedProducts fit_products(const std::vector<ProductTime>& times);

// A collective whose ring has `rounds` * (ranks - 1) steps: 2 rounds for an all-reduce, 1 for an all-gather. `bytes`:
// of the full tensor.
struct CollectiveTime {
  int ranks = 2, rounds = 2;
  double bytes = 0, seconds = 0;
};
// Throws UsageError without times.
Link fit_link(const std::vector<CollectiveTime>& times);

struct Observation {
  std::vector<double> terms;
  double target = 1;
};
// Returns the non-negative coefficients c for which sum(c * terms) has the least squared relative error to `target`. A
// column that depends on others gets 0. Throws UsageError without observations.
std::vector<double> fit_non_negative(const std::vector<Observation>& all);

}  // namespace gantry::planner
