// The work of a model's layers, and how they are distributed over stages by it. Units are of no matter:
// multiplications, or times that were measured.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace gantry {

struct LayerWork {
  std::vector<double> layers;  // of each layer
  double first = 0;            // what the first stage does besides: looking up embeddings is cheap
  double last = 0;             // what the last stage does besides: the head may be as much as several layers
};

// The multiplications of a token from a model's own keys (Hugging Face's): one for each weight of a layer's and of the
// head's matrices. A backward has twice as many of each, so shares are the same. Where the keys don't state sizes, all
// layers are equal and nothing is known of the head: `last` is 0.
LayerWork layer_work_in(const nlohmann::json& model_keys, int layers);

// The work of each stage, and of each rank with all its stages.
std::vector<double> work_of_stages(const LayerWork& work, const std::vector<int>& layers_of_stage);
std::vector<double> work_of_ranks(const std::vector<double>& work_of_stages, const std::vector<int>& rank_of_stage);

// Mean over largest: the share of the time that the mean rank works while it is not waiting for the heaviest; 1 is
// even.
double evenness(const std::vector<double>& work_of_ranks);

// Layers per stage so that the heaviest rank has as little work as can be; of equally good ways one with light heaviest
// stages, the later ranks and stages being the heavier ones. Every stage has a layer, but the last one needs none where
// it has other work. Exact where all layers are equal, whatever stages a rank holds, and for any layers where each rank
// holds one stage; else the best found by moving borders of stages one layer at a time. ConfigError where there are too
// few layers.
std::vector<int> distribute_by_work(const LayerWork& work, const std::vector<int>& rank_of_stage);

}  // namespace gantry
