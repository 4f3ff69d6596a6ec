#include "gantry/planner/collectives.h"

#include <algorithm>

namespace gantry::planner {
namespace {

// A ring's steps, of which each passes an n-th of the bytes on.
double ring(const Group& group, double bytes, int rounds, const Cluster& cluster) {
  if (group.size < 2) return 0;
  const Link link = link_of(group, cluster);
  const double steps = static_cast<double>(rounds) * (group.size - 1);
  return link.call_seconds + steps * (link.latency_seconds + bytes / group.size / link.bytes_per_second);
}

}  // namespace

Group tensor_group(const Layout& layout) { return {layout.tensor, 1}; }
Group context_group(const Layout& layout) { return {layout.context, layout.tensor}; }
Group batch_group(const Layout& layout) { return {layout.data * layout.context, layout.tensor}; }
Group expert_group(const Layout& layout) { return {layout.expert, 1}; }
Group expert_batch_group(const Layout& layout) {
  return {layout.data * layout.context * layout.tensor / layout.expert, layout.expert};
}
Group pipeline_group(const Layout& layout) { return {layout.pipeline, layout.tensor * layout.context * layout.data}; }

Link link_of(const Group& group, const Cluster& cluster) {
  const auto span = static_cast<long long>(group.size) * group.stride;
  if (span <= cluster.per_host) return cluster.within;
  const int on_host = std::clamp(cluster.per_host / group.stride, 1, group.size);
  Link link = cluster.between;
  link.bytes_per_second = std::min(on_host * link.bytes_per_second, cluster.within.bytes_per_second);
  return link;
}

double all_reduce(const Group& group, double bytes, const Cluster& cluster) { return ring(group, bytes, 2, cluster); }
double half_reduce(const Group& group, double bytes, const Cluster& cluster) { return ring(group, bytes, 1, cluster); }

// Each rank's own link takes what leaves its host; the others' parts stay within.
double exchange(const Group& group, double bytes, const Cluster& cluster) {
  if (group.size < 2) return 0;
  const int on_host = std::clamp(cluster.per_host / group.stride, 1, group.size);
  const bool leaves = on_host < group.size;
  const Link& link = leaves ? cluster.between : cluster.within;
  const double share = static_cast<double>(group.size - (leaves ? on_host : 1)) / group.size;
  return link.call_seconds + (group.size - 1) * link.latency_seconds + share * bytes / link.bytes_per_second;
}

double message(const Group& group, double bytes, const Cluster& cluster) {
  if (group.size < 2) return 0;
  const Link& link = 2 * group.stride <= cluster.per_host ? cluster.within : cluster.between;
  return link.call_seconds + link.latency_seconds + bytes / link.bytes_per_second;
}

}  // namespace gantry::planner
