// Runs a schedule in simulated time.
#pragma once

#include <string>
#include <vector>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

// Of one stage and one microbatch.
struct StageCosts {
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;  // a full backward costs input_gradient + weight_gradient
  double send_forward = 0;     // latency of a message to the next stage; occupies no rank
  double send_backward = 0;    // of a message to the stage before
  double activation = 1;       // memory held from F to B, or to I of a split backward
  double weight_input = 1;     // memory held from I to W
  // Of parameters that are cut over replicas: times and bytes of a gather and of the gradients' sum, and the memory of
  // whole parameters (UNSHARD to RESHARD) and gradients (the first backward to the end of REDUCE_GRAD).
  double unshard = 0, reduce = 0;
  double unshard_bytes = 0, reduce_bytes = 0;
  double parameters = 0, gradients = 0;
  // Of what waits in host memory: the optimizer's state, in the unit of `activation`, and how much of that unit moves
  // there or back in a unit of time; 0: in no time.
  double state = 0;
  double host_bandwidth = 0;
};

// Of one rank's passes of one microbatch, where all ranks share embedding and head, by algorithm 1.
struct VocabularyCosts {
  double embedding_forward = 0.02, embedding_backward = 0.02;
  double head_forward = 0.25, head_backward = 0.5;
  double head_combine = 0;  // algorithm 2's

  double sum() const { return embedding_forward + embedding_backward + head_forward + head_backward + head_combine; }
};

struct Costs {
  double forward = 1;  // of a rank's whole share of one microbatch; a chunk takes 1 / chunks of it
  double input_gradient = 1;
  double weight_gradient = 1;
  double hop = 0;                  // latency of one message
  std::vector<StageCosts> stages;  // measured or estimated by stage: in place of the above where there are any
  VocabularyCosts vocabulary = {};
};

struct TimedAction {
  Action action;
  double start = 0;
  double end = 0;
};

// What a rank holds from `time` on, in the unit of StageCosts::activation.
struct HeldMemory {
  double time = 0;
  double memory = 0;
};

struct Simulation {
  std::vector<std::vector<TimedAction>> timeline;  // by rank: what it computes
  std::vector<std::vector<TimedAction>> extra;     // by rank: extra actions, one after the other, while it computes
  double makespan_global = 0;         // first start to last end: a step whose ranks wait for each other at its end
  double makespan_max_rank = 0;       // longest (end - start) of a rank: a step without such an optimizer barrier
  double bubble_rate = 0;             // (makespan_max_rank - work) / makespan_max_rank
  std::vector<int> peak_activations;  // chunk activations per rank, held from F to B, or to W of a split backward, but
                                      // not while they are in host memory
  std::vector<double> peak_memory;    // per rank, in the unit of StageCosts::activation
  std::vector<std::vector<HeldMemory>> memory;  // per rank, at each change
  std::vector<double> extra_bytes;              // per rank, that its extra actions move
};

// Each action starts when its rank is free and its data is there. An overlapped pair costs the sum of its parts: it
// starts when the data of both is there, and the results of both are ready at its end. The work of a rank is m (F + I +
// W), with costs by stage the mean of what the ranks do. Without backwards it is m F, and no activation is held longer
// than its forward. An extra action starts when its row has come to it and the one before it has ended, and what needs
// it waits for its end. Takes a valid schedule without messages, and costs of every stage or none; else ConfigError.
Simulation simulate(const Schedule& schedule, const Costs& costs = {});

// The costs of every stage: those by stage where there are any, else each stage's part of its rank's share.
std::vector<StageCosts> stage_costs(const Schedule& schedule, const Costs& costs);

// A lane a rank, and below it a band of its extra actions where it has any. Text: every action with its label, in at
// most three bands of `width` columns, or one band with a letter a column where that is not enough. SVG: one
// self-contained file. Chrome trace: a unit of cost is shown as a millisecond.
std::string draw_text(const Simulation& simulation, int width = 100);
std::string draw_svg(const Simulation& simulation, const std::string& title);
std::string draw_chrome_trace(const Simulation& simulation);

}  // namespace gantry::schedule
