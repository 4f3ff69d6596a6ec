#include "gantry/planner/cut_parameters.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace gantry::planner {
namespace {

constexpr int kInWindow = 2;  // of a rank's stages: the one in use, and the next

}  // namespace

Group shard_group(const Layout& layout) {
  const Group batch = batch_group(layout);
  return {layout.shard > 0 ? layout.shard : batch.size, batch.stride};
}

Group shard_replicas_group(const Layout& layout) {
  const Group shard = shard_group(layout);
  return {batch_group(layout).size / shard.size, shard.stride * shard.size};
}

std::string gather_of(const Layout& layout) {
  if (layout.gather != "auto") return layout.gather;
  return layout.pipeline == 1 ? "microbatch" : "window";
}

// A layer that is gathered around each use is gathered by each forward and each backward.
double gathers_of_step(const Layout& layout, int microbatches, int stages_of_rank) {
  const std::string gather = gather_of(layout);
  const bool stays = gather == "step" || (gather == "window" && stages_of_rank <= kInWindow);
  return stays ? 1 : 2.0 * microbatches;
}

WholeElements whole_elements(const Layout& layout, const LayoutCosts& costs, int rank) {
  std::vector<double> stages;
  double all = 0, largest = 0, outside = 0;
  for (const int stage : costs.stages_of_rank[rank]) {
    const StageTimes& each = costs.stages[stage];
    stages.push_back(each.parameters.dense);
    all += each.parameters.dense;
    largest = std::max(largest, each.largest_layer);
    outside += each.outside_layers;
  }
  const double two_layers = std::min(all, 2 * largest + outside);
  const std::string gather = gather_of(layout);
  if (gather == "microbatch") return {two_layers, costs.microbatches == 1 ? two_layers : all};
  if (gather == "step") return {all, all};
  std::ranges::sort(stages, std::greater{});
  double window = 0;
  for (std::size_t i = 0; i < stages.size() && i < kInWindow; ++i) window += stages[i];
  return {window, all};
}

}  // namespace gantry::planner
