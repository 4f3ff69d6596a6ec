// The parameters of a bucket in one flat tensor, of which each dp rank steps a range: what every kind of ZeRO does with
// values.
#pragma once

#include "gantry/comm/process_group_mesh.h"
#include "gantry/optimizers/gradient_bucket.h"

namespace gantry {

// True for buckets that have several dp ranks to be partitioned over. Elements that tp ranks share would need owners of
// their own: such parameters stay whole.
bool can_be_partitioned(const BucketKind& kind, const ProcessGroupMesh& mesh);

// Partitions the bucket's elements over the dp ranks, and moves the parameters into the flat tensor.
void partition_values(GradientBucket& bucket, const ProcessGroupMesh& mesh);

// Sends the values of this rank's range to the other replicas. Collective over dp.
Work gather_partitioned_values(GradientBucket& bucket, const ProcessGroupMesh& mesh);

}  // namespace gantry
