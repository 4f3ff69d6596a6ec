#include "gantry/planner/search.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <tuple>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/planner/candidates.h"
#include "gantry/planner/costs.h"
#include "gantry/schedule/validate.h"

namespace gantry::planner {
namespace {

// A table of a hundred layers takes about 30 KiB, and a large search has thousands of tables.
constexpr std::size_t kMostTables = 512;
// Schedules with passes of the vocabulary are slow to make, and take some MiB each.
constexpr std::size_t kMostActions = 2'000'000;

// Caches costs that layouts of one search have in common.
class SharedCosts {
 public:
  struct Placed {
    SchedulePlan plan;
    std::vector<int> layers;
  };

  // Both must outlive this object.
  SharedCosts(const Workload& workload, const Cluster& cluster) : workload_(workload), cluster_(cluster) {}

  LayoutCosts of(const Layout& layout, const Placed& placed);
  // Stages do not depend on the number of microbatches. Throws ConfigError if the schedule or the distribution of
  // layers is not possible.
  const Placed& placed(const Layout& layout);
  PipelineRun run_of(const Layout& layout, const LayoutCosts& costs);
  const PassTotals& totals(const Layout& sizes, const std::vector<Recompute>& recomputations);

 private:
  using Sizes = std::tuple<int, int, int, int, bool>;
  static Sizes sizes_of(const Layout& layout) {
    return {layout.tensor, layout.context, layout.expert, layout.microbatch, layout.sequence_parallel};
  }
  const CostTable& table(const Layout& layout);
  const schedule::Schedule& vocabulary_schedule(const Layout& layout, int microbatches);

  const Workload& workload_;
  const Cluster& cluster_;
  std::map<Sizes, std::unique_ptr<CostTable>> tables_;
  std::map<Sizes, PassTotals> totals_;
  std::map<std::tuple<std::string, int, int>, SchedulePlan> plans_;
  std::map<std::tuple<std::vector<std::vector<int>>, bool, bool>, std::vector<int>> layers_;
  std::map<std::tuple<std::string, int, int, bool, bool>, std::unique_ptr<Placed>> placed_;
  std::map<std::tuple<std::string, int, int, int>, schedule::Schedule> with_vocabulary_;
  std::size_t kept_actions_ = 0;
};

LayoutCosts SharedCosts::of(const Layout& layout, const Placed& placed) {
  return make_layout_costs(workload_, layout, cluster_, table(layout), placed.plan.stages_of_rank, placed.layers);
}

const SharedCosts::Placed& SharedCosts::placed(const Layout& layout) {
  auto& entry = placed_[{layout.schedule, layout.pipeline, layout.chunks, layout.balanced, layout.shares_vocabulary}];
  if (entry) return *entry;
  const std::tuple schedule{layout.schedule, layout.pipeline, layout.chunks};
  if (!plans_.contains(schedule)) plans_[schedule] = schedule_plan(layout, 2 * layout.pipeline);
  auto made = std::make_unique<Placed>();
  made->plan = plans_[schedule];
  const std::tuple placement{made->plan.stages_of_rank, layout.balanced, layout.shares_vocabulary};
  if (!layers_.contains(placement)) layers_[placement] = layers_of(workload_, layout, made->plan.stages_of_rank);
  made->layers = layers_[placement];
  entry = std::move(made);
  return *entry;
}

PipelineRun SharedCosts::run_of(const Layout& layout, const LayoutCosts& costs) {
  const auto* known = costs.vocabulary ? &vocabulary_schedule(layout, costs.microbatches) : nullptr;
  return run_pipeline(workload_, layout, costs, known);
}

// The schedule does not depend on times.
const schedule::Schedule& SharedCosts::vocabulary_schedule(const Layout& layout, int microbatches) {
  const std::tuple sizes{layout.schedule, layout.pipeline, layout.chunks, microbatches};
  const auto found = with_vocabulary_.find(sizes);
  if (found != with_vocabulary_.end()) return found->second;
  schedule::Schedule made = schedule_with_vocabulary(workload_, layout, microbatches);
  schedule::validate(made);
  std::size_t actions = 0;
  for (const auto& row : made.actions) actions += row.size();
  if (kept_actions_ + actions > kMostActions) with_vocabulary_.clear(), kept_actions_ = 0;
  kept_actions_ += actions;
  return with_vocabulary_[sizes] = std::move(made);
}

const PassTotals& SharedCosts::totals(const Layout& sizes, const std::vector<Recompute>& recomputations) {
  const auto found = totals_.find(sizes_of(sizes));
  if (found != totals_.end()) return found->second;
  const PassTotals made = pass_totals(make_cost_table(workload_, sizes, cluster_), recomputations);
  return totals_[sizes_of(sizes)] = made;
}

const CostTable& SharedCosts::table(const Layout& layout) {
  const auto found = tables_.find(sizes_of(layout));
  if (found != tables_.end()) return *found->second;
  if (tables_.size() >= kMostTables) tables_.clear();
  auto made = std::make_unique<CostTable>(make_cost_table(workload_, layout, cluster_));
  return *(tables_[sizes_of(layout)] = std::move(made));
}

// Relative difference that may be rounding.
constexpr double kSame = 1e-9;

// The steps of the search that are done for a layout. At kFit only the memory state is open, which a simulation does
// not depend on.
enum class Settled { kSizes, kPlacement, kRecomputation, kFit };

struct Node {
  double seconds = 0;  // lower bound of the layouts that the node represents
  long long order = 0;
  Settled settled = Settled::kSizes;
  Layout layout;

  bool operator>(const Node& other) const { return std::pair(seconds, order) > std::pair(other.seconds, other.order); }
};

// Sizes whose layouts do not fit into memory.
struct TooLarge {
  double bytes = 0;  // lower bound
  Layout sizes;
};

class LayoutSearch {
 public:
  LayoutSearch(const PlanRequest& request, const Cluster& cluster, const SearchOptions& options)
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

  // The next step can only increase the bound.
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
      } catch (const ConfigError& error) {  // an impossible schedule or distribution of layers
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
        skipped_.push_back({bytes, sizes});
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

  // Layers by work are tried only if their distribution differs from that by number.
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

  // Whether the layout may fit into memory; if not, it may be the nearest.
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

  // Uses one simulation for all memory states that fit.
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

  // Sizes that were skipped because of their memory may contain the layout that needs least.
  void find_nearest() {
    const long long too_large = result_.too_large;
    std::ranges::stable_sort(skipped_, {}, &TooLarge::bytes);
    for (const TooLarge& each : skipped_) {
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
  std::vector<TooLarge> skipped_;
  double least_bytes_ = 1e300;
  std::optional<Layout> least_layout_;
  SearchResult result_;
};

}  // namespace

SearchResult search(const PlanRequest& request, const Cluster& cluster, const SearchOptions& options) {
  if (!cluster.device.matrix_flops.contains(request.workload.precision))
    throw ConfigError({"cluster " + cluster.name, "there is no matrix rate for precision " + request.workload.precision,
                       "a rate in device.matrix_tflops", "add it to the cluster file"});
  return LayoutSearch(request, cluster, options).run();
}

}  // namespace gantry::planner
