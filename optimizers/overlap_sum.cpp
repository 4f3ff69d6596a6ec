#include "gantry/optimizers/overlap_sum.h"

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/nn/overlap.h"

namespace gantry {

void sum_overlaps(torch::Tensor& local, const Placement& placement, const ProcessGroupMesh& mesh) {
  for (std::size_t i = 0; i < placement.cuts.size(); ++i) {
    const ShardSpec& cut = placement.cuts[i];
    if (!cut.overlaps()) continue;
    if (placement.is_cut_again(i))
      throw InternalError({placement.name,
                           "the tensor is sharded further along a dimension in which ranks share elements",
                           "one shard step for that dimension", ""});
    sum_overlaps(local, cut, mesh.group(names_of(cut.axes)));
  }
}

}  // namespace gantry
