// The cost of a model's layers, and their distribution over stages. The unit is arbitrary: multiplications, or measured
// times.
#pragma once

#include <vector>

namespace gantry {

// The cost of the layers and of the stages at both ends.
struct LayerWork {
  std::vector<double> layers;  // cost of each layer
  double first = 0;            // additional cost of the first stage; embedding look-ups are cheap
  double last = 0;             // additional cost of the last stage; the head can cost as much as several layers
  // Number of layers at the end that predict further tokens (multi-token prediction). One stage has all of them.
  int mtp = 0;
};

// The cost of each stage, and of each rank with all its stages.
std::vector<double> work_of_stages(const LayerWork& work, const std::vector<int>& layers_of_stage);
std::vector<double> work_of_ranks(const std::vector<double>& work_of_stages, const std::vector<int>& rank_of_stage);

// Mean over maximum: the fraction of the time that the average rank works if all wait for the slowest. 1: balanced.
double evenness(const std::vector<double>& work_of_ranks);

// Returns the number of layers of each stage that minimises the cost of the most expensive rank and, among equal
// solutions, the cost of the most expensive stage. Remaining ties are resolved in the same way by every rank and
// program. Every stage gets at least one layer, but the last one may get none if it has other work.
//
// The result is optimal if all layers are equal, if each rank holds one stage, or if the search for unequal layers ends
// within its step limit (schedule/stages/stage_search.h). With two stages per rank (kLoop or kV) it does so for 128
// layers over 16 ranks, with four stages per rank for 32 layers over 4 ranks. Otherwise the result is the best solution
// found near the one with the cheapest stages. Throws ConfigError if there are too few layers, or if a cost is negative
// or not a number.
std::vector<int> distribute_by_work(const LayerWork& work, const std::vector<int>& rank_of_stage);

}  // namespace gantry
