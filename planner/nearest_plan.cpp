// Where a search has found nothing: what is missing, and what would do.
#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/planner/search.h"

namespace gantry::planner {
namespace {

constexpr double kGibi = 1024.0 * 1024 * 1024;
constexpr int kMostGrowth = 64;  // times as many hosts are tried

// The first size that is stated and leaves no layout, with its arithmetic; "" for none.
std::string misfit(const PlanRequest& request, const Cluster& cluster) {
  const Layout& stated = request.stated;
  const auto is_open = [&](const std::string& name) { return request.open.contains("parallel." + name); };
  int ranks = cluster.ranks();
  std::string left = fmt::format("{} ranks", ranks);
  bool all_stated = true;
  for (const auto& [name, size] :
       {std::pair("tensor", stated.tensor), {"pipeline", stated.pipeline}, {"context", stated.context}}) {
    if (is_open(name)) {
      all_stated = false;
      continue;
    }
    if (ranks % size != 0) return fmt::format("{} {} does not divide {}", name, size, left);
    ranks /= size;
    if (size > 1) left = fmt::format("the {} ranks that {} {} leaves", ranks, name, size);
  }
  const auto batch = request.workload.batch;
  if (!is_open("data") && stated.data > 0) {
    if (ranks % stated.data != 0) return fmt::format("data {} does not divide {}", stated.data, left);
  } else if (all_stated && batch % ranks != 0) {
    return fmt::format("{} replicas do not divide a batch of {} samples", ranks, batch);
  }
  if (const auto count = request.config.schedule.microbatches; count && *count > batch)
    return fmt::format("{} microbatches are more than the {} samples", *count, batch);
  if (!request.open.contains("schedule.microbatch_size") && stated.microbatch > batch)
    return fmt::format("microbatches of {} samples are above the {} of a step", stated.microbatch, batch);
  return "";
}

// The best with one stated key open, or on more hosts.
std::string what_would_do(const PlanRequest& request, const Cluster& cluster) {
  std::optional<PlannedLayout> best;
  std::string with;
  const auto try_with = [&](const PlanRequest& other, const Cluster& on, const std::string& what) {
    SearchResult found = search(other, on, {.top = 1});
    if (found.best.empty() || (best && best->estimate.step_seconds <= found.best.front().estimate.step_seconds)) return;
    best = std::move(found.best.front());
    with = what;
  };
  for (const std::string& key : plannable_keys()) {
    if (request.open.contains(key)) continue;
    PlanRequest opened = request;
    opened.open.insert(key);
    if (key == "schedule.microbatch_size") opened.config.schedule.microbatches.reset();
    try_with(opened, cluster, key + " open");
  }
  for (int times = 2; times <= kMostGrowth && !best; times *= 2) {
    Cluster more = cluster;
    more.hosts *= times;
    try_with(request, more, fmt::format("{} hosts of {}", more.hosts, more.per_host));
  }
  if (!best) return "";
  return fmt::format("with {}, {} fits: {:.4g} s a step", with, describe(best->layout), best->estimate.step_seconds);
}

}  // namespace

std::string shortfall(const PlannedLayout& layout, const Cluster& cluster) {
  const double needed = layout.estimate.most_memory(), there = cluster.device.memory_bytes;
  return fmt::format("the nearest, {}, needs {:.1f} GiB of a device, {:.1f} more than its {:.1f}",
                     describe(layout.layout), needed / kGibi, (needed - there) / kGibi, there / kGibi);
}

std::string why_none(const SearchResult& found, const PlanRequest& request, const Cluster& cluster) {
  if (found.nearest) return "no layout fits: " + shortfall(*found.nearest, cluster);
  if (!found.objection.empty()) return found.objection;
  const std::string stated = misfit(request, cluster);
  return stated.empty() ? "no layout has the sizes that are stated" : stated;
}

void require_layouts(const SearchResult& found, const PlanRequest& request, const Cluster& cluster) {
  if (!found.best.empty()) return;
  std::string remedy = what_would_do(request, cluster);
  if (remedy.empty()) remedy = found.nearest ? "raise --ranks, or open more keys" : "state fewer keys";
  throw ConfigError({fmt::format("plan of {} ranks", cluster.ranks()), why_none(found, request, cluster),
                     found.nearest ? "layouts that fit" : "sizes that fit each other", remedy});
}

}  // namespace gantry::planner
