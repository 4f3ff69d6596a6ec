// Estimates the time and memory of a step from sizes only, without LibTorch and without a device.
//
// A layer is a list of operations. The time of each operation follows from the rates of the cluster: a roofline model
// for matrix multiplications and element-wise operations, an alpha-beta model for collectives over the slowest link of
// the group. The times of the stages are passed to the schedule simulator. Work that is done once per step is added:
// reductions over the data-parallel ranks, and the optimizer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/layout.h"

namespace gantry::planner {

// The parts of the step time, for the rank that works longest. Their sum is the step time.
struct Seconds {
  double compute = 0;    // operations on the device, including recomputation
  double tensor = 0;     // collectives within layers
  double context = 0;    // exchange of keys and values
  double expert = 0;     // exchange of tokens
  double pipeline = 0;   // the bubble, and waits for messages
  double data = 0;       // data-parallel reductions and gathers that are not overlapped
  double optimizer = 0;  // also forward passes before the step: of a teacher, or of kto

  double sum() const { return compute + tensor + context + expert + pipeline + data + optimizer; }
  Seconds& operator+=(const Seconds& more);
  Seconds times(double count) const;
};

// Bytes of a rank.
struct Memory {
  double parameters = 0, gradients = 0, optimizer = 0;
  double activations = 0;  // peak
  double working = 0;      // temporary memory: logits, buckets, a recomputed layer
  double teacher = 0;      // weights of a teacher, and its logits of a step

  double sum() const { return parameters + gradients + optimizer + activations + working + teacher; }
};

// The estimate of a step.
struct Estimate {
  double step_seconds = 0;
  double tokens_per_second = 0;
  double mfu = 0;     // by the formula of model_flops()
  double bubble = 0;  // fraction of the pipeline's time for which the average rank waits
  Seconds seconds;
  std::vector<Memory> memory;  // memory of each pipeline rank
  bool fits = true;            // the memory of the devices is sufficient

  double most_memory() const;
};

// Returns why the layout is not possible for the workload and the cluster, with the numbers; empty if it is.
std::optional<std::string> objection(const Workload& workload, const Layout& layout, const Cluster& cluster);

// Throws ConfigError with the text of objection() if the layout is not possible.
Estimate estimate(const Workload& workload, const Layout& layout, const Cluster& cluster);

// Times of one microbatch on one rank's part of one layer. `again`: recomputation in the backward.
struct LayerSeconds {
  Seconds forward, input_gradient, weight_gradient, again;
};
LayerSeconds layer_seconds(const Workload& workload, const models::LayerSpec& layer, const Layout& layout,
                           const Cluster& cluster);

// Returns the bytes that a rank keeps for one layer and one microbatch from forward to backward.
double kept_bytes(const Workload& workload, const models::LayerSpec& layer, const Layout& layout);

// Returns a lower bound of the step time for all schedules: the work of the longest rank, its initial wait, and work
// that is done once per step.
double least_seconds(const Workload& workload, const Layout& layout, const Cluster& cluster);

}  // namespace gantry::planner
