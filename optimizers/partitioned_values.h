// The parameters of a bucket in one flat tensor, of which each replica steps a range: what every kind of ZeRO does with
// values.
#pragma once

#include "gantry/comm/process_group_mesh.h"
#include "gantry/optimizers/gradient_bucket.h"

namespace gantry {

// The ranks that hold the bucket's parameters alike: over them it may be partitioned. It has such axes.
ProcessGroup& replicas_of(const GradientBucket& bucket, const ProcessGroupMesh& mesh);

// True for buckets that have several replicas to be partitioned over. Elements that several ranks of a shard hold would
// need owners of their own: such parameters stay unsharded.
bool can_be_partitioned(const BucketKind& kind, const ProcessGroupMesh& mesh);

// Partitions the bucket's elements over its replicas, and moves the parameters into the flat tensor.
void partition_values(GradientBucket& bucket, const ProcessGroupMesh& mesh);

// Sends the values of this rank's range to the other replicas. Collective over them.
Work gather_partitioned_values(GradientBucket& bucket, const ProcessGroupMesh& mesh);

}  // namespace gantry
