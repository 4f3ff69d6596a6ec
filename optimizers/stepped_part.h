// The elements of a parameter that one rank steps: all of them without ZeRO, its range of the bucket with ZeRO 1 and 2,
// and its rows with ZeRO 3.
#pragma once

#include "gantry/comm/process_group_mesh.h"
#include "gantry/optimizers/gradient_bucket.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// A parameter in its bucket.
struct BucketedParameter {
  const HeldTensor& held;
  const GradientBucket& bucket;
  const BucketMember& member;
  const HeldTensor* rows;  // with ZeRO 3: the rows that this rank holds; otherwise null
};

// The placement of the elements. With ZeRO 1 and 2, the result of the earlier shards is also sharded over the replicas,
// by elements. Its ranges are those of the ranks that share this rank's other coordinates.
Placement part_placement(const BucketedParameter& parameter, const Mesh& mesh);

// This rank's range of the flattened gradient and of the flattened values, as [elements], without copies.
torch::Tensor part_gradient(const BucketedParameter& parameter, const ProcessGroupMesh& mesh);
torch::Tensor part_values(const BucketedParameter& parameter, const ProcessGroupMesh& mesh);

}  // namespace gantry
