// The parameters of a bucket in one flat tensor, of which each replica steps a range. Used by ZeRO 1 and 2.
#pragma once

#include "gantry/comm/process_group_mesh.h"
#include "gantry/optimizers/gradient_bucket.h"

namespace gantry {

// The ranks that hold the same parameters of the bucket, over which it may be partitioned. Requires that it
// has such axes.
ProcessGroup& replicas_of(const GradientBucket& bucket, const ProcessGroupMesh& mesh);

// True for buckets that have several replicas to be partitioned over. False if several ranks of a shard hold
// some elements: these would need owners of their own, so such parameters stay unsharded.
bool can_be_partitioned(const BucketKind& kind, const ProcessGroupMesh& mesh);

// Partitions the bucket's elements over its replicas, and moves the parameters into the flat tensor.
void partition_values(GradientBucket& bucket, const ProcessGroupMesh& mesh);

// Sends the values of this rank's range to the other replicas. Collective over them.
Work gather_partitioned_values(GradientBucket& bucket, const ProcessGroupMesh& mesh);

}  // namespace gantry
