// The zero-bubble heuristic (Qi et al., arXiv 2401.10241) followed by a local search, for given times and a limit of
// activations. The default limit is that of 1F1B, p.
#include <algorithm>

#include "gantry/schedule/generators/fill_search.h"
#include "gantry/schedule/generators/generator.h"
#include "gantry/schedule/generators/zb_heuristic.h"

namespace gantry::schedule {
namespace {

constexpr double kWaitingShare = 0.5;

// Runs ahead[rank] forwards, then alternates a backward and a forward.
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

// `quarters / 4 * (p - rank)` forwards ahead, within the limit: 1 gives the order of ZB-H1, 2 about that of ZB-H2.
std::vector<int> lead(const PipelineSizes& sizes, int quarters, int less, int limit) {
  std::vector<int> ahead;
  for (int rank = 0; rank < sizes.ranks; ++rank)
    ahead.push_back(std::clamp((quarters * (sizes.ranks - rank) + 3) / 4 - less, 1, limit));
  return ahead;
}

// The best lead; of equally good ones the first.
std::vector<int> try_leads(FillSearch& search, const PipelineSizes& sizes, int limit) {
  std::vector<int> best = lead(sizes, 4, 0, limit);
  for (int quarters = 4; quarters <= 12; ++quarters)
    for (const int less : {0, 1}) {
      if (search.exhausted()) return best;
      auto ahead = lead(sizes, quarters, less, limit);
      if (search.try_order(order_of(sizes, ahead))) best = std::move(ahead);
    }
  return best;
}

// Changes the number of forwards ahead by one, on one rank or on all ranks up to it, as long as that helps.
void improve_lead(FillSearch& search, const PipelineSizes& sizes, int limit, std::vector<int> ahead) {
  for (bool helped = true; helped;) {
    helped = false;
    for (int rank = 0; rank < sizes.ranks; ++rank)
      for (const int first : {rank, 0})
        for (const int more : {1, -1}) {
          if (search.exhausted()) return;
          auto changed = ahead;
          for (int each = first; each <= rank; ++each) changed[each] = std::clamp(ahead[each] + more, 1, limit);
          if (changed == ahead || !search.try_order(order_of(sizes, changed))) continue;
          ahead = std::move(changed);
          helped = true;
        }
  }
}

Schedule make_zb_auto(const PipelineSizes& sizes, const GeneratorOptions& options) {
  const double asked = options.memory_limit > 0 ? options.memory_limit : sizes.ranks;
  const bool counts_full = asked <= sizes.ranks;
  OrderOptions filled = full_times({.forward = options.forward,
                                    .input_gradient = options.input_gradient,
                                    .weight_gradient = options.weight_gradient,
                                    .hop = options.hop,
                                    .limit = std::max(1, static_cast<int>(std::min(asked, 1e9)))});
  OrderOptions waiting = filled;
  if (!counts_full) waiting.waiting_share = kWaitingShare;
  FillSearch search(filled);
  const Schedule placed = empty_schedule("zb_auto", sizes);
  if (auto published = zb_heuristic(placed, waiting)) {
    search.begin_with(*published);
    search.try_order(without_weights(std::move(*published)));
  }
  auto ahead = try_leads(search, sizes, filled.limit);
  if (!counts_full) {
    search.allow(waiting);
    ahead = try_leads(search, sizes, filled.limit);
  }
  improve_lead(search, sizes, filled.limit, ahead);
  if (!counts_full) search.improve_by_swaps();
  return search.best();
}

}  // namespace

Generator zb_auto() { return {.name = "zb_auto", .takes_memory_limit = true, .make = make_zb_auto}; }

}  // namespace gantry::schedule
