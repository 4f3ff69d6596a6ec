#include "gantry/planner/planned_config.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/error.h"
#include "gantry/planner/search.h"

namespace gantry::planner {

PlannedConfig planned_config(const std::string& path, const std::vector<std::string>& sets, const PlanRequest& request,
                             const Cluster& cluster) {
  const SearchResult found = search(request, cluster, {.top = 1});
  require_layouts(found, request, cluster);
  const PlannedLayout& best = found.best.front();
  return {.config = configured(path, sets, overrides_of(best.layout)),
          .text = fmt::format("plan for {} ranks of {}: {}, {:.4g} s a step ({} layouts)\n", cluster.ranks(),
                              cluster.name, describe(best.layout), best.estimate.step_seconds, found.layouts)};
}

void refuse_without_cluster(const std::string& command, const std::set<std::string>& keys) {
  throw UsageError({command, fmt::format("{} say auto, and no --cluster is named", fmt::join(keys, ", ")),
                    "--cluster NAME", "`gantry plan measure --output FILE.yaml` makes one of this machine"});
}

std::string estimate_line(const Config& config, const std::string& cluster) {
  const PlanRequest request = plan_request(config);
  const Cluster whole = load_cluster(cluster);
  Layout layout = request.stated;
  if (layout.data == 0) {
    layout.data = 1;
    layout = with_data(request, std::max(1, whole.ranks() / layout.ranks()));
  }
  const Cluster part = with_ranks(whole, layout.ranks(), is_builtin_cluster(cluster));
  return fmt::format("estimate for {} ranks of {}: {}, {:.4g} s a step\n", part.ranks(), part.name, describe(layout),
                     estimate(request.workload, layout, part).step_seconds);
}

}  // namespace gantry::planner
