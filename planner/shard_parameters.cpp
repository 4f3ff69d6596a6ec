#include "gantry/planner/shard_parameters.h"

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

Group expert_shard_group(const Layout& layout) {
  if (layout.expert == 1) return shard_group(layout);
  return {std::max(1, shard_group(layout).size * layout.tensor / layout.expert), expert_batch_group(layout).stride};
}

Group expert_shard_replicas_group(const Layout& layout) {
  if (layout.expert == 1) return shard_replicas_group(layout);
  const Group shard = expert_shard_group(layout);
  return {expert_batch_group(layout).size / shard.size, shard.stride * shard.size};
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
  double all = 0, largest = 0, end = 0, tied = 0;
  for (const int stage : costs.stages_of_rank[rank]) {
    const StageTimes& each = costs.stages[stage];
    stages.push_back(each.parameters.dense + each.parameters.experts);
    all += stages.back();
    largest = std::max(largest, each.largest_layer);
    end = std::max(end, each.largest_end);
    tied += each.tied_end;
  }
  const double two_units = std::min(all, largest + std::max(largest, end));
  // Embedding and head add to one gradient, which stands meanwhile.
  const double two_gradients = tied > 0 ? std::min(all, 2 * largest + tied) : two_units;
  const std::string gather = gather_of(layout);
  if (gather == "microbatch" && costs.microbatches == 1) return {two_units, two_gradients, largest};
  if (gather == "microbatch") return {two_units, all};
  if (gather == "step") return {all, all};
  std::ranges::sort(stages, std::greater{});
  double window = 0;
  for (std::size_t i = 0; i < stages.size() && i < kInWindow; ++i) window += stages[i];
  return {window, all};
}

}  // namespace gantry::planner
