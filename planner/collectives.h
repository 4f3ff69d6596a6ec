// Times of messages and collectives by alpha and beta, over the slowest link that a group crosses.
#pragma once

#include "gantry/planner/cluster.h"
#include "gantry/planner/layout.h"

namespace gantry::planner {

// Ranks that are `stride` apart from their neighbours, as the mesh counts them.
struct Group {
  int size = 1;
  int stride = 1;
};

// The groups of a rank: tensor innermost, then context, data, pipeline.
Group tensor_group(const Layout& layout);
Group context_group(const Layout& layout);
Group batch_group(const Layout& layout);  // data and context
Group expert_group(const Layout& layout);
Group expert_batch_group(const Layout& layout);
Group pipeline_group(const Layout& layout);

// The link that the group's ring goes over: between hosts, where those of its ranks that share a host also share its
// network with no other group of the same kind.
Link link_of(const Group& group, const Cluster& cluster);

// `bytes` are those of the whole tensor: what an all-reduce takes, an all-gather gives and a reduce-scatter takes; of
// exchange() what a rank has to send in all, of message() what is sent. Seconds; 0 for a group of one.
double all_reduce(const Group& group, double bytes, const Cluster& cluster);
double half_reduce(const Group& group, double bytes, const Cluster& cluster);  // all-gather or reduce-scatter
double exchange(const Group& group, double bytes, const Cluster& cluster);
double message(const Group& group, double bytes, const Cluster& cluster);

}  // namespace gantry::planner
