#include "gantry/optimizers/partitioned_values.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {

ProcessGroup& replicas_of(const GradientBucket& bucket, const ProcessGroupMesh& mesh) {
  return mesh.group(bucket.kind.replicas);
}

bool can_be_partitioned(const BucketKind& kind, const ProcessGroupMesh& mesh) {
  return !kind.overlaps && !kind.replicas.empty() && mesh.group(kind.replicas).size() > 1;
}

void partition_values(GradientBucket& bucket, const ProcessGroupMesh& mesh) {
  const torch::NoGradGuard no_grad;
  partition(bucket, replicas_of(bucket, mesh).size());
  bucket.values = torch::zeros({bucket.elements}, bucket.members.front().tensor.options());
  for (auto& member : bucket.members) {
    torch::Tensor values = share_memory(bucket.values, member.offset, member.tensor.sizes());
    values.copy_(member.tensor);
    member.tensor.set_data(values);
  }
}

Work gather_partitioned_values(GradientBucket& bucket, const ProcessGroupMesh& mesh) {
  ProcessGroup& replicas = replicas_of(bucket, mesh);
  const Range own = bucket.range(replicas.rank());
  return replicas.all_gather(bucket.values, bucket.values.narrow(0, own.begin, own.size()), bucket.sizes);
}

}  // namespace gantry
