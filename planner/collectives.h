// The groups of ranks that a layout makes, and the times of their messages and collectives by alpha and beta.
#pragma once

#include "gantry/planner/cluster.h"
#include "gantry/planner/layout.h"

namespace gantry::planner {

// Ranks with a distance of `stride` between neighbours, in the order of the mesh.
struct Group {
  int size = 1;
  int stride = 1;
};

// The groups of a rank. The order of the mesh is tensor (innermost), context, data, pipeline.
Group tensor_group(const Layout& layout);
Group context_group(const Layout& layout);
Group batch_group(const Layout& layout);  // data and context
Group expert_group(const Layout& layout);
Group expert_batch_group(const Layout& layout);
Group pipeline_group(const Layout& layout);

// For ZeRO 3: the ranks over which a parameter is sharded, context first, and the ranks that have the same shard (see
// core/sharding/row_shards.h).
Group shard_group(const Layout& layout);
Group shard_replicas_group(const Layout& layout);
// The same for the parameters of experts.
Group expert_shard_group(const Layout& layout);
Group expert_shard_replicas_group(const Layout& layout);

// The slowest link of the group's ring. Ranks of the group on the same host share the host's network, but no other
// group of the same kind uses it at that time.
Link link_of(const Group& group, const Cluster& cluster);

// Seconds; 0 for a group of one rank. `bytes` is the size of the full tensor: the input of an all-reduce or a
// reduce-scatter, the output of an all-gather. For exchange() it is the total that a rank sends, for message() the size
// of the message.
double all_reduce(const Group& group, double bytes, const Cluster& cluster);
double half_reduce(const Group& group, double bytes, const Cluster& cluster);  // all-gather or reduce-scatter
double exchange(const Group& group, double bytes, const Cluster& cluster);
double message(const Group& group, double bytes, const Cluster& cluster);

}  // namespace gantry::planner
