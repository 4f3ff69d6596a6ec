#include "gantry/optimizers/stepped_part.h"

#include <algorithm>

#include "gantry/optimizers/partitioned_values.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// The elements of the flattened parameter that a replica steps.
Range range_of_replica(const BucketedParameter& parameter, int replica) {
  const std::int64_t elements = parameter.held.tensor.numel(), offset = parameter.member.offset;
  const Range own = parameter.bucket.range(replica);
  const std::int64_t begin = std::clamp<std::int64_t>(own.begin - offset, 0, elements);
  return {begin, std::clamp<std::int64_t>(own.end - offset, begin, elements)};
}

int own_replica(const GradientBucket& bucket, const ProcessGroupMesh& mesh) {
  return bucket.is_partitioned() ? replicas_of(bucket, mesh).rank() : 0;
}

}  // namespace

Placement part_placement(const BucketedParameter& parameter, const Mesh& mesh) {
  if (parameter.rows) return parameter.rows->placement;
  Placement placement = parameter.held.placement;
  if (!parameter.bucket.is_partitioned()) return placement;
  const auto& replicas = parameter.bucket.kind.replicas;
  ShardSpec shard = shard_rows(1, {});
  for (const auto& axis : mesh.axes(placement.view))  // outermost first, like the ranks of the group
    if (std::find(replicas.begin(), replicas.end(), axis.name) != replicas.end()) shard.axes.push_back(axis);
  Segment segment{{0, parameter.held.tensor.numel()}, {}};
  for (int replica = 0; replica < shard.ranks(); ++replica)
    segment.range_of_rank.push_back(range_of_replica(parameter, replica));
  shard.segments = {std::move(segment)};
  placement.shards.push_back(std::move(shard));
  return placement;
}

torch::Tensor part_gradient(const BucketedParameter& parameter, const ProcessGroupMesh& mesh) {
  const GradientBucket& bucket = parameter.bucket;
  if (parameter.rows) return share_memory(bucket.sum, parameter.member.own, {parameter.rows->tensor.numel()});
  const int replica = own_replica(bucket, mesh);
  const Range part = range_of_replica(parameter, replica);
  if (part.size() == 0) return share_memory(bucket.sum, 0, {0});
  return share_memory(bucket.sum, parameter.member.offset + part.begin - bucket.range(replica).begin, {part.size()});
}

torch::Tensor part_values(const BucketedParameter& parameter, const ProcessGroupMesh& mesh) {
  if (parameter.rows) return share_memory(parameter.rows->tensor, 0, {parameter.rows->tensor.numel()});
  const Range part = range_of_replica(parameter, own_replica(parameter.bucket, mesh));
  return share_memory(parameter.held.tensor, part.begin, {part.size()});
}

}  // namespace gantry
