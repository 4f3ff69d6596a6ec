#include "gantry/planner/search.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <queue>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/planner/candidates.h"
#include "gantry/planner/layout_costs.h"
#include "gantry/planner/lower_bound_of_sizes.h"
#include "gantry/planner/shared_costs.h"
#include "gantry/planner/shared_vocabulary.h"

namespace gantry::planner {
namespace {

// Rounding alone is no difference.
constexpr double kSame = 1e-9;

// How much of a layout is settled; in the end all but its states, which a simulation does not look at.
enum class Settled { kSizes, kPlacement, kRecomputation, kFit };

struct Node {
  double seconds = 0;  // no layout that it stands for takes less
  long long order = 0;
  Settled settled = Settled::kSizes;
  Layout layout;

  bool operator>(const Node& other) const { return std::pair(seconds, order) > std::pair(other.seconds, other.order); }
};

// Layouts that can't be in memory, by sizes.
struct Crowded {
  double bytes = 0;  // no layout of these sizes needs less
  Layout sizes;
};

class Search {
 public:
  Search(const PlanRequest& request, const Cluster& cluster, const SearchOptions& options)
      : workload_(request.workload),
        stated_(request.stated),
        cluster_(cluster),
        options_(options),
        candidates_(request, cluster),
        placement_{.may_share_vocabulary = candidates_.may_share_vocabulary(),
                   .may_leave_stages_empty = candidates_.may_leave_stages_empty()},
        shared_(request.workload, cluster) {}

  SearchResult run() {
    candidates_.visit_sizes([this](const Layout& sizes) { consider(sizes); });
    go_through();
    if (result_.layouts == 0 && result_.objection.empty() && stated_.data > 0)
      result_.objection = objection(workload_, stated_, cluster_).value_or("");
    if (result_.best.empty()) find_nearest();
    return std::move(result_);
  }

 private:
  bool is_beaten(double seconds) const {
    return options_.prunes && static_cast<int>(result_.best.size()) >= options_.top &&
           seconds * (1 - kSame) > result_.best.back().estimate.step_seconds;
  }

  // What is settled next can only take longer.
  void push(const Layout& layout, Settled settled, double seconds) {
    ++result_.bounded;
    if (!is_beaten(seconds)) open_.push({seconds, order_++, settled, layout});
  }

  void go_through() {
    while (!open_.empty() && !is_beaten(open_.top().seconds)) {
      const Node next = open_.top();
      open_.pop();
      try {
        settle_more(next);
      } catch (const ConfigError& error) {  // a schedule or a distribution of layers that is not defined
        result_.objection = error.what();
      }
    }
  }

  void settle_more(const Node& node) {
    switch (node.settled) {
      case Settled::kSizes:
        return candidates_.visit_placements(node.layout, [this](const Layout& placed) { place(placed); });
      case Settled::kPlacement:
        return recompute(node.layout);
      case Settled::kRecomputation:
        return bound_states(node.layout);
      case Settled::kFit:
        return estimate_all(node.layout);
    }
  }

  void consider(const Layout& sizes) {
    if (sizes.sequence_parallel && workload_.sequence % sizes.tensor != 0) return;
    if (const auto refused = sizes_objection(workload_, sizes, cluster_)) {
      result_.objection = *refused;
      return;
    }
    try {
      const PassTotals& totals = shared_.totals(sizes, candidates_.recomputations());
      const long long layouts = count_of(sizes);
      result_.layouts += layouts;
      const double bytes = least_bytes_of_sizes(workload_, sizes, totals, placement_, candidates_.zeros(sizes));
      if (options_.prunes && bytes > cluster_.device.memory_bytes) {
        result_.too_large += layouts;
        crowded_.push_back({bytes, sizes});
        return;
      }
      push(sizes, Settled::kSizes, least_seconds_of_sizes(workload_, sizes, cluster_, totals, placement_));
    } catch (const ConfigError& error) {
      result_.objection = error.what();
    }
  }

  long long count_of(const Layout& sizes) const {
    long long count = 0, states = 0;
    candidates_.visit_placements(sizes, [&](const Layout& placed) {
      states = 0;
      candidates_.visit_states(placed, [&](const Layout&) { ++states; });
      count += states * static_cast<long long>(candidates_.recomputations().size());
    });
    return count;
  }

  // Layers by work are worth a look where they lie otherwise than by count.
  void place(const Layout& layout) {
    try {
      if (const auto refused = vocabulary_objection(workload_, layout)) {
        result_.objection = *refused;
        return;
      }
      const auto& placed = shared_.placed(layout);
      if (layout.balanced && !stated_.balanced) {
        Layout by_count = layout;
        by_count.balanced = false;
        if (shared_.placed(by_count).layers == placed.layers) return;
      }
      push_pipeline(layout, Settled::kPlacement);
    } catch (const ConfigError& error) {
      result_.objection = error.what();
    }
  }

  void recompute(Layout layout) {
    for (const Recompute how : candidates_.recomputations()) {
      layout.recompute = how;
      push_pipeline(layout, Settled::kRecomputation);
    }
  }

  void push_pipeline(const Layout& layout, Settled settled) {
    const auto& placed = shared_.placed(layout);
    push(layout, settled,
         least_pipeline_seconds(workload_, shared_.of(layout, placed), placed.plan.splits_backward) +
             cluster_.step_seconds);
  }

  bool is_defined(const Layout& layout) {
    const auto refused = sizes_objection(workload_, layout, cluster_);
    if (refused) result_.objection = *refused;
    return !refused;
  }

  // Whether the layout may be in memory; else it may be the nearest.
  bool may_fit(const Layout& layout, const LayoutCosts& costs) {
    const double bytes = least_memory_with(workload_, layout, costs);
    if (bytes < least_bytes_) least_bytes_ = bytes, least_layout_ = layout;
    return !options_.prunes || bytes <= cluster_.device.memory_bytes;
  }

  void bound_states(const Layout& layout) {
    const auto& placed = shared_.placed(layout);
    const LayoutCosts costs = shared_.of(layout, placed);
    double least = 1e300;
    candidates_.visit_states(layout, [&](const Layout& held) {
      if (!is_defined(held)) return;
      if (!may_fit(held, costs)) {
        ++result_.too_large;
        return;
      }
      least = std::min(least, least_seconds_with(workload_, held, cluster_, costs, placed.plan.splits_backward));
    });
    if (least < 1e300) push(layout, Settled::kFit, least);
  }

  // Of one simulation all that fit.
  void estimate_all(const Layout& layout) {
    const LayoutCosts costs = shared_.of(layout, shared_.placed(layout));
    const PipelineRun run = shared_.run_of(layout, costs);
    ++result_.estimated;
    candidates_.visit_states(layout, [&](const Layout& held) {
      if (!is_defined(held) || !may_fit(held, costs)) return;
      Estimate estimate = estimate_with(workload_, held, cluster_, costs, run);
      if (!estimate.fits) return;
      const auto place = std::ranges::upper_bound(result_.best, estimate.step_seconds, {},
                                                  [](const PlannedLayout& one) { return one.estimate.step_seconds; });
      result_.best.insert(place, {held, std::move(estimate)});
      if (static_cast<int>(result_.best.size()) > options_.top) result_.best.pop_back();
    });
  }

  // Sizes that were passed over by their bytes may have the layout that needs least.
  void find_nearest() {
    const long long too_large = result_.too_large;
    std::ranges::stable_sort(crowded_, {}, &Crowded::bytes);
    for (const Crowded& each : crowded_) {
      if (each.bytes > least_bytes_) break;
      push(each.sizes, Settled::kSizes, 0);
      go_through();
    }
    result_.too_large = too_large;
    if (!least_layout_) return;
    const LayoutCosts costs = shared_.of(*least_layout_, shared_.placed(*least_layout_));
    result_.nearest = {*least_layout_, estimate_with(workload_, *least_layout_, cluster_, costs,
                                                     shared_.run_of(*least_layout_, costs))};
  }

  const Workload& workload_;
  const Layout& stated_;
  const Cluster& cluster_;
  SearchOptions options_;
  Candidates candidates_;
  OpenPlacement placement_;
  SharedCosts shared_;
  std::priority_queue<Node, std::vector<Node>, std::greater<>> open_;
  long long order_ = 0;
  std::vector<Crowded> crowded_;
  double least_bytes_ = 1e300;
  std::optional<Layout> least_layout_;
  SearchResult result_;
};

}  // namespace

SearchResult search(const PlanRequest& request, const Cluster& cluster, const SearchOptions& options) {
  if (!cluster.device.matrix_flops.contains(request.workload.precision))
    throw ConfigError({"cluster " + cluster.name, "states no matrix rate for precision " + request.workload.precision,
                       "one under device.matrix_tflops", ""});
  return Search(request, cluster, options).run();
}

}  // namespace gantry::planner
