#include "gantry/planner/collectives.h"

#include <algorithm>

namespace gantry::planner {
namespace {

// A ring of n ranks, each of whose steps sends an n-th of the bytes.
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

Group shard_group(const Layout& layout) {
  const Group batch = batch_group(layout);
  return {layout.shard > 0 ? layout.shard : batch.size, batch.stride};
}

Group shard_replicas_group(const Layout& layout) {
  const Group shard = shard_group(layout);
  return {batch_group(layout).size / shard.size, shard.stride * shard.size};
}

Group expert_shard_group(const Layout& layout) {
  if (layout.expert == 1) return shard_group(layout);
  return {std::max(1, shard_group(layout).size * layout.tensor / layout.expert), expert_batch_group(layout).stride};
}

Group expert_shard_replicas_group(const Layout& layout) {
  if (layout.expert == 1) return shard_replicas_group(layout);
  const Group shard = expert_shard_group(layout);
  return {expert_batch_group(layout).size / shard.size, shard.stride * shard.size};
}

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

// Only the parts for ranks of other hosts are sent over the links between hosts.
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
