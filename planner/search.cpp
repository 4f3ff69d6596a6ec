#include "gantry/planner/search.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <tuple>

#include "gantry/core/error.h"
#include "gantry/planner/candidates.h"
#include "gantry/planner/layout_costs.h"
#include "gantry/planner/shared_vocabulary.h"

namespace gantry::planner {
namespace {

// Rounding alone is no difference.
constexpr double kSame = 1e-9;

// What layouts have in common is made once.
class SharedCosts {
 public:
  SharedCosts(const Workload& workload, const Cluster& cluster) : workload_(workload), cluster_(cluster) {}

  struct Placed {
    SchedulePlan plan;
    std::vector<int> layers;
  };

  LayoutCosts of(const Layout& layout, const Placed& placed) {
    return make_layout_costs(workload_, layout, cluster_, table(layout), placed.plan.stages_of_rank, placed.layers);
  }
  // Stages don't depend on the number of microbatches. ConfigError where a schedule or a distribution refuses.
  const Placed& placed(const Layout& layout) {
    auto& entry = placed_[{layout.schedule, layout.pipeline, layout.chunks, layout.balanced, layout.shares_vocabulary}];
    if (!entry) {
      const int count = std::min(layout.microbatches_of(workload_.batch), 2 * layout.pipeline);
      auto made = std::make_unique<Placed>();
      made->plan = schedule_plan(layout, count);
      made->layers = layers_of(workload_, layout, made->plan.stages_of_rank);
      entry = std::move(made);
    }
    return *entry;
  }

 private:
  const CostTable& table(const Layout& layout) {
    auto& entry = tables_[{layout.tensor, layout.context, layout.expert, layout.microbatch, layout.sequence_parallel}];
    if (!entry) entry = std::make_unique<CostTable>(make_cost_table(workload_, layout, cluster_));
    return *entry;
  }

  const Workload& workload_;
  const Cluster& cluster_;
  std::map<std::tuple<int, int, int, int, bool>, std::unique_ptr<CostTable>> tables_;
  std::map<std::tuple<std::string, int, int, bool, bool>, std::unique_ptr<Placed>> placed_;
};

struct Bounded {
  Layout layout;
  double seconds = 0;  // no schedule of it takes less
};

class Search {
 public:
  Search(const PlanRequest& request, const Cluster& cluster, const SearchOptions& options)
      : workload_(request.workload),
        stated_(request.stated),
        cluster_(cluster),
        options_(options),
        shared_(request.workload, cluster) {
    visit_layouts(request, cluster, [this](const Layout& layout) { consider(layout); });
  }

  SearchResult run() {
    std::ranges::stable_sort(open_, {}, &Bounded::seconds);
    for (const Bounded& next : open_) {
      if (options_.prunes && is_full() && next.seconds * (1 - kSame) > result_.best.back().estimate.step_seconds) break;
      estimate_one(next.layout);
    }
    if (result_.defined == 0 && result_.objection.empty() && stated_.data > 0)
      result_.objection = objection(workload_, stated_, cluster_).value_or("");
    if (result_.best.empty() && least_layout_) {
      const auto& placed = shared_.placed(*least_layout_);
      result_.nearest = {*least_layout_,
                         estimate_with(workload_, *least_layout_, cluster_, shared_.of(*least_layout_, placed))};
    }
    return std::move(result_);
  }

 private:
  bool is_full() const { return static_cast<int>(result_.best.size()) >= options_.top; }

  void consider(const Layout& layout) {
    if (layout.sequence_parallel && workload_.sequence % layout.tensor != 0) return;
    if (const auto refused = vocabulary_objection(workload_, layout)) {
      result_.objection = *refused;
      return;
    }
    try {
      const auto& placed = shared_.placed(layout);
      const LayoutCosts costs = shared_.of(layout, placed);
      ++result_.defined;
      const double bytes = least_memory_with(workload_, layout, costs);
      if (bytes < least_bytes_) least_bytes_ = bytes, least_layout_ = layout;
      if (bytes > cluster_.device.memory_bytes) {
        ++result_.too_large;
        if (options_.prunes) return;
      }
      open_.push_back({layout, least_seconds_with(workload_, layout, cluster_, costs, placed.plan.splits_backward)});
    } catch (const ConfigError& error) {
      result_.objection = error.what();
    }
  }

  void estimate_one(const Layout& layout) {
    Estimate estimate;
    try {
      estimate = estimate_with(workload_, layout, cluster_, shared_.of(layout, shared_.placed(layout)));
    } catch (const ConfigError& error) {  // its schedule is not defined for so many microbatches
      result_.objection = error.what();
      return;
    }
    ++result_.estimated;
    if (!estimate.fits) return;
    const auto place = std::ranges::upper_bound(result_.best, estimate.step_seconds, {},
                                                [](const PlannedLayout& one) { return one.estimate.step_seconds; });
    result_.best.insert(place, {layout, std::move(estimate)});
    if (static_cast<int>(result_.best.size()) > options_.top) result_.best.pop_back();
  }

  const Workload& workload_;
  const Layout& stated_;
  const Cluster& cluster_;
  SearchOptions options_;
  SharedCosts shared_;
  std::vector<Bounded> open_;
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

std::string shortfall(const PlannedLayout& layout, const Cluster& cluster) {
  constexpr double kGibi = 1024.0 * 1024 * 1024;
  const double needed = layout.estimate.most_memory(), there = cluster.device.memory_bytes;
  return fmt::format("the nearest, {}, needs {:.1f} GiB of a device, {:.1f} more than its {:.1f}",
                     describe(layout.layout), needed / kGibi, (needed - there) / kGibi, there / kGibi);
}

void require_layouts(const SearchResult& found, const Cluster& cluster) {
  if (!found.best.empty()) return;
  const std::string where = fmt::format("plan of {} ranks", cluster.ranks());
  if (found.nearest)
    throw ConfigError({where, "no layout fits: " + shortfall(*found.nearest, cluster), "layouts that fit",
                       "raise --ranks, or open more keys"});
  throw ConfigError({where, found.objection.empty() ? "no layout has the sizes that are stated" : found.objection,
                     "sizes that fit each other", "state fewer keys"});
}

}  // namespace gantry::planner
