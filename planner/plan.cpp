#include "gantry/planner/plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <optional>
#include <utility>

#include "gantry/core/base/number_text.h"
#include "gantry/core/error.h"

namespace gantry::planner {
namespace {

constexpr double kBytesPerGib = 1024.0 * 1024 * 1024;
constexpr int kMostGrowth = 64;  // largest factor by which the number of hosts is raised

// The first size of the request that leaves no layout, with the numbers; "" if there is none.
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
    return fmt::format("microbatches of {} samples are above the {} samples of a step", stated.microbatch, batch);
  return "";
}

// The best layout with one key of the request open, or on more hosts.
std::string remedy_text(const PlanRequest& request, const Cluster& cluster) {
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
                     describe(layout.layout), needed / kBytesPerGib, (needed - there) / kBytesPerGib,
                     there / kBytesPerGib);
}

std::string why_none(const SearchResult& found, const PlanRequest& request, const Cluster& cluster) {
  if (found.nearest) return "no layout fits: " + shortfall(*found.nearest, cluster);
  if (!found.objection.empty()) return found.objection;
  const std::string stated = misfit(request, cluster);
  return stated.empty() ? "no layout has the sizes of the configuration" : stated;
}

void require_layouts(const SearchResult& found, const PlanRequest& request, const Cluster& cluster) {
  if (!found.best.empty()) return;
  std::string remedy = remedy_text(request, cluster);
  if (remedy.empty()) remedy = found.nearest ? "raise --ranks, or set more keys to auto" : "set more keys to auto";
  throw ConfigError({fmt::format("plan of {} ranks", cluster.ranks()), why_none(found, request, cluster),
                     found.nearest ? "a layout that fits" : "sizes that are compatible", remedy});
}

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
  throw UsageError(
      {command, fmt::format("keys are auto ({}), but there is no --cluster to plan for", fmt::join(keys, ", ")),
       "--cluster NAME", "measure this machine with `gantry plan measure --output FILE.yaml`, or set the keys"});
}

std::string estimate_line(const Config& config, const std::string& cluster) {
  const PlanRequest request = plan_request(config);
  const Cluster full = load_cluster(cluster);
  Layout layout = request.stated;
  if (layout.data == 0) {
    layout.data = 1;
    layout = with_data(request, std::max(1, full.ranks() / layout.ranks()));
  }
  const Cluster part = with_ranks(full, layout.ranks(), is_builtin_cluster(cluster));
  const Estimate step = estimate(request.workload, layout, part);
  return fmt::format("estimate for {} ranks of {}: {}, {:.4g} s a step, {} on the fullest rank\n", part.ranks(),
                     part.name, describe(layout), step.step_seconds, bytes_text(step.most_memory()));
}

// Each layout is the fastest that takes less memory than the previous one.
std::vector<PlannedLayout> pareto_front(const PlanRequest& request, const Cluster& cluster, int most) {
  std::vector<PlannedLayout> front;
  Cluster limited = cluster;
  while (static_cast<int>(front.size()) < most) {
    SearchResult found = search(request, limited, {.top = 1});
    if (found.best.empty()) break;
    front.push_back(std::move(found.best.front()));
    limited.device.memory_bytes = front.back().estimate.most_memory() - 1;
  }
  return front;
}

std::vector<WhatIf> what_if(const PlanRequest& request, const Cluster& cluster) {
  std::vector<std::pair<const char*, std::function<void(Cluster&)>>> changes = {
      {"1 GiB more memory", [](Cluster& more) { more.device.memory_bytes += kBytesPerGib; }},
      {"twice the rate within hosts", [](Cluster& more) { more.within.bytes_per_second *= 2; }}};
  if (cluster.hosts > 1)
    changes.emplace_back("twice the rate between hosts", [](Cluster& more) { more.between.bytes_per_second *= 2; });
  std::vector<WhatIf> all;
  for (const auto& [words, change] : changes) {
    Cluster more = cluster;
    change(more);
    SearchResult found = search(request, more, {.top = 1});
    if (!found.best.empty()) all.push_back({words, std::move(found.best.front())});
  }
  return all;
}

}  // namespace gantry::planner
