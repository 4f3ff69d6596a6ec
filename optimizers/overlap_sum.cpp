#include "gantry/optimizers/overlap_sum.h"

#include "gantry/core/error.h"
#include "gantry/nn/overlap.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

void sum_overlaps(torch::Tensor& local, const Placement& placement, const ProcessGroupMesh& mesh) {
  for (std::size_t i = 0; i < placement.shards.size(); ++i) {
    const ShardSpec& shard = placement.shards[i];
    if (!shard.overlaps()) continue;
    if (placement.is_sharded_again(i))
      throw InternalError({placement.name,
                           "the tensor is sharded further along a dimension in which ranks share elements",
                           "one shard step for that dimension", ""});
    sum_overlaps(local, shard, mesh.group(names_of(shard.axes)));
  }
}

}  // namespace gantry
