// How long a step takes and what it holds, from sizes alone: no LibTorch, no device.
//
// A layer is a list of operations; each has a time by the cluster's rates (roofline for products and element-wise work,
// alpha and beta for collectives, by the slowest link that a group crosses). Stages' times go through the schedule's
// simulator. What a step does once comes on top: reductions over data parallel ranks, the optimizer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/layout.h"

namespace gantry::planner {

// Of the rank that works longest. They add up to the step.
struct Seconds {
  double compute = 0;   // operations of the device, recomputation among them
  double tensor = 0;    // collectives within layers
  double context = 0;   // passing keys and values round
  double expert = 0;    // exchanging tokens
  double pipeline = 0;  // the bubble, and messages that are waited for
  double data = 0;      // reductions and gathers over data parallel ranks that nothing hides
  double optimizer = 0;

  double sum() const { return compute + tensor + context + expert + pipeline + data + optimizer; }
  Seconds& operator+=(const Seconds& more);
  Seconds times(double count) const;
};

// Bytes of a rank.
struct Memory {
  double parameters = 0, gradients = 0, optimizer = 0;
  double activations = 0;  // at their peak
  double working = 0;      // what lives within an operation: logits, buckets, a layer that is computed again

  double sum() const { return parameters + gradients + optimizer + activations + working; }
};

struct Estimate {
  double step_seconds = 0;
  double tokens_per_second = 0;
  double mfu = 0;     // by the formula of model_flops()
  double bubble = 0;  // of the pipeline's time, the share that the mean rank waits
  Seconds seconds;
  std::vector<Memory> memory;  // of each pipeline rank
  bool fits = true;            // in the devices' memory

  double most_memory() const;
};

// Whether the layout is defined for the workload and the cluster; else what does not fit, with the arithmetic.
std::optional<std::string> objection(const Workload& workload, const Layout& layout, const Cluster& cluster);

// ConfigError as of objection().
Estimate estimate(const Workload& workload, const Layout& layout, const Cluster& cluster);

// Times of one microbatch on one rank's part of one layer: forward, and backward with what is computed again.
struct LayerSeconds {
  Seconds forward, input_gradient, weight_gradient, again;
};
LayerSeconds layer_seconds(const Workload& workload, const models::LayerSpec& layer, const Layout& layout,
                           const Cluster& cluster);

// Bytes that one layer keeps of one microbatch on one rank from its forward to its backward.
double kept_bytes(const Workload& workload, const models::LayerSpec& layer, const Layout& layout);

// No step of the layout is shorter: the longest rank's work, what it waits for at its start, and what comes once.
double least_seconds(const Workload& workload, const Layout& layout, const Cluster& cluster);

}  // namespace gantry::planner
