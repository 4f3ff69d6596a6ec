#include "gantry/planner/what_if.h"

#include <functional>
#include <utility>

namespace gantry::planner {
namespace {

constexpr double kGibi = 1024.0 * 1024 * 1024;

}  // namespace

// Each is the fastest that takes less memory than the one before.
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
      {"1 GiB more memory", [](Cluster& more) { more.device.memory_bytes += kGibi; }},
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
