#include "gantry/schedule/layer_work.h"

#include <algorithm>
#include <numeric>

namespace gantry {
std::vector<double> work_of_stages(const LayerWork& work, const std::vector<int>& layers_of_stage) {
  std::vector<double> on_stage;
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < layers_of_stage.size(); ++stage) {
    double sum = stage == 0 ? work.first : 0;
    for (int i = 0; i < layers_of_stage[stage]; ++i) sum += work.layers.at(layer++);
    if (stage + 1 == layers_of_stage.size()) sum += work.last;
    on_stage.push_back(sum);
  }
  return on_stage;
}

std::vector<double> work_of_ranks(const std::vector<double>& on_stage, const std::vector<int>& rank_of_stage) {
  std::vector<double> on_rank(std::ranges::max(rank_of_stage) + 1, 0);
  for (std::size_t stage = 0; stage < on_stage.size(); ++stage) on_rank[rank_of_stage[stage]] += on_stage[stage];
  return on_rank;
}

double evenness(const std::vector<double>& on_rank) {
  const double largest = std::ranges::max(on_rank);
  if (!(largest > 0)) return 1;
  return std::accumulate(on_rank.begin(), on_rank.end(), 0.0) / static_cast<double>(on_rank.size()) / largest;
}

}  // namespace gantry
