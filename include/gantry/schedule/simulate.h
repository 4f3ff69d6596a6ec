// Simulates the time and memory of a schedule.
#pragma once

#include <string>
#include <vector>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

// Costs of one stage and one microbatch.
struct StageCosts {
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;  // a full backward costs input_gradient + weight_gradient
  double send_forward = 0;     // latency of a message to the next stage; occupies no rank
  double send_backward = 0;    // latency of a message to the previous stage
  double activation = 1;       // memory held from F to B, or to I of a split backward
  double weight_input = 1;     // memory held from I to W
  // For parameters that are sharded over replicas: time and bytes of a gather and of the gradient reduction, and memory
  // of unsharded parameters (UNSHARD to RESHARD) and gradients (first backward to the end of REDUCE_GRAD).
  double unshard = 0, reduce = 0;
  double unshard_bytes = 0, reduce_bytes = 0;
  double parameters = 0, gradients = 0;
  // For offloading: memory of the optimizer state, in the unit of `activation`, and the transfer rate in that unit per
  // unit of time; 0: transfers take no time.
  double state = 0;
  double host_bandwidth = 0;
};

// Costs of one rank's passes for one microbatch if all ranks share embedding and head, with algorithm 1.
struct VocabularyCosts {
  double embedding_forward = 0.02, embedding_backward = 0.02;
  double head_forward = 0.25, head_backward = 0.5;
  double head_combine = 0;  // algorithm 2 only

  double sum() const { return embedding_forward + embedding_backward + head_forward + head_backward + head_combine; }
};

// The costs of a simulation: the same for all stages, or per stage.
struct Costs {
  double forward = 1;  // time of a rank's full share of one microbatch; a chunk takes 1 / chunks of it
  double input_gradient = 1;
  double weight_gradient = 1;
  double hop = 0;                  // latency of one message
  std::vector<StageCosts> stages;  // measured or estimated per stage; if not empty, replaces the values above
  VocabularyCosts vocabulary = {};
};

// An action with its start and end.
struct TimedAction {
  Action action;
  double start = 0;
  double end = 0;
};

// Memory of a rank from `time` on, in the unit of StageCosts::activation.
struct HeldMemory {
  double time = 0;
  double memory = 0;
};

// The result of a simulation.
struct Simulation {
  std::vector<std::vector<TimedAction>> timeline;  // by rank: compute actions
  // By rank: extra actions, one after the other, concurrent with the computation.
  std::vector<std::vector<TimedAction>> extra;
  double makespan_global = 0;    // first start to last end: a step at whose end ranks wait for each other
  double makespan_max_rank = 0;  // longest (end - start) of a rank: a step without such a barrier
  double bubble_rate = 0;        // (makespan_max_rank - work) / makespan_max_rank
  // Number of chunk activations per rank, held from F to B (to W of a split backward), except while in host memory.
  std::vector<int> peak_activations;
  std::vector<double> peak_memory;              // per rank, in the unit of StageCosts::activation
  std::vector<std::vector<HeldMemory>> memory;  // per rank, at each change
  std::vector<double> extra_bytes;              // bytes per rank that its extra actions transfer
};

// Simulates a schedule. Each action starts when its rank is free and its data is available. An overlapped pair takes
// the sum of its parts: it starts when the data of both is available, and both results are available at its end. The
// work of a rank is m (F + I + W), or with costs per stage the mean over the ranks of their computing time. Without
// backwards the work is m F, and an activation is held only during its forward. An extra action starts when its rank
// reaches it and the previous one has ended; actions that depend on it wait for its end.
// Takes a valid schedule without messages, and costs of all stages or none; otherwise throws ConfigError.
Simulation simulate(const Schedule& schedule, const Costs& costs = {});

// The costs of every stage: `costs.stages` or, if that is empty, each stage's part of its rank's share.
std::vector<StageCosts> stage_costs(const Schedule& schedule, const Costs& costs);

// These functions draw one lane per rank and below it a band of its extra actions, if any. As text, every action has
// its label, in at most three bands of `width` columns; if they do not suffice, there is one band with one letter per
// column. The SVG is one self-contained file. In the Chrome trace, a unit of cost is one millisecond.
std::string draw_text(const Simulation& simulation, int width = 100);
std::string draw_svg(const Simulation& simulation, const std::string& title);
std::string draw_chrome_trace(const Simulation& simulation);

}  // namespace gantry::schedule
