// The zero-bubble heuristic (Qi et al., arXiv 2401.10241): for given times and a limit of activations, which is 1F1B's
// p where nobody says otherwise.
#include <algorithm>

#include "gantry/schedule/generators/fill_weights.h"

namespace gantry::schedule {
namespace {

constexpr double kWaitingShare = 1.0 / 3;

// Runs ahead[rank] forwards, then a backward and a forward in turn.
Schedule order_of(const PipelineSizes& sizes, const std::vector<int>& ahead) {
  Schedule order = empty_schedule("zb_auto", sizes);
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    auto& row = order.actions[rank];
    int forward = 0;
    while (forward < std::min(ahead[rank], sizes.microbatches)) row.push_back({ActionKind::kForward, rank, forward++});
    for (int backward = 0; backward < sizes.microbatches; ++backward) {
      row.push_back({ActionKind::kInputGradient, rank, backward});
      if (forward < sizes.microbatches) row.push_back({ActionKind::kForward, rank, forward++});
    }
  }
  return order;
}

// `quarters / 4 * (p - rank)` forwards ahead, within the limit: 1 gives ZB-H1's order, 2 about ZB-H2's.
std::vector<int> lead(const PipelineSizes& sizes, int quarters, int less, int limit) {
  std::vector<int> ahead;
  for (int rank = 0; rank < sizes.ranks; ++rank)
    ahead.push_back(std::clamp((quarters * (sizes.ranks - rank) + 3) / 4 - less, 1, limit));
  return ahead;
}

Schedule make_zb_auto(const PipelineSizes& sizes, const GeneratorOptions& options) {
  const double asked = options.memory_limit > 0 ? options.memory_limit : sizes.ranks;
  GreedyOptions filled{.forward = options.forward,
                       .input_gradient = options.input_gradient,
                       .weight_gradient = options.weight_gradient,
                       .hop = options.hop,
                       .limit = std::max(1, static_cast<int>(std::min(asked, 1e9))),
                       .split_backward = true};
  Schedule best = make_greedy(empty_schedule("zb_auto", sizes), filled);
  std::vector<Schedule> orders{without_weights(best)};
  for (int quarters = 4; quarters <= 12; ++quarters)
    for (const int less : {0, 1}) orders.push_back(order_of(sizes, lead(sizes, quarters, less, filled.limit)));
  best = best_filled(best, orders, filled);
  if (asked <= sizes.ranks) return best;
  filled.waiting_share = kWaitingShare;
  orders.push_back(without_weights(make_greedy(empty_schedule("zb_auto", sizes), filled)));
  return best_filled(best, orders, filled);
}

}  // namespace

Generator zb_auto() { return {.name = "zb_auto", .takes_memory_limit = true, .make = make_zb_auto}; }

}  // namespace gantry::schedule
