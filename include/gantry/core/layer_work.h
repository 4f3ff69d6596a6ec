// The work of a model's layers, and how they are distributed over stages by it. Units are of no matter:
// multiplications, or times that were measured.
#pragma once

#include <vector>

namespace gantry {

// The heads of a layer's attention, of the whole model.
struct AttentionHeads {
  int heads = 1;
  int key_heads = 1;
  bool operator==(const AttentionHeads&) const = default;
};

struct LayerWork {
  std::vector<double> layers;  // of each layer
  double first = 0;            // what the first stage does besides: looking up embeddings is cheap
  double last = 0;             // what the last stage does besides: the head may be as much as several layers
};

// The work of each stage, and of each rank with all its stages.
std::vector<double> work_of_stages(const LayerWork& work, const std::vector<int>& layers_of_stage);
std::vector<double> work_of_ranks(const std::vector<double>& work_of_stages, const std::vector<int>& rank_of_stage);

// Mean over largest: the share of the time that the mean rank works while it is not waiting for the heaviest; 1 is
// even.
double evenness(const std::vector<double>& work_of_ranks);

// Layers per stage by which the heaviest rank has the least work; of equally good ways one whose heaviest stage has the
// least. What is left open is chosen in the same way by every rank and program. Every stage has a layer, but the last
// one needs none where it has other work.
//
// No way is better where all layers are equal, where each rank holds one stage, and where the search for unequal layers
// ends within its steps (core/stage_search.h): for two stages per rank, looped or forth and back, it does at 128 layers
// over 16 ranks, for four at 32 over 4. Where it does not, the result is the best that was found near the lightest
// stages. ConfigError where there are too few layers, or a work that is negative or no number.
std::vector<int> distribute_by_work(const LayerWork& work, const std::vector<int>& rank_of_stage);

}  // namespace gantry
