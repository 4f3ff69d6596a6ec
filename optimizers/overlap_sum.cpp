#include "gantry/optimizers/overlap_sum.h"

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/nn/overlap.h"

namespace gantry {

void sum_overlaps(torch::Tensor& local, const Placement& placement, const ProcessGroupMesh& mesh) {
  for (std::size_t i = 0; i < placement.cuts.size(); ++i) {
    const Cut& cut = placement.cuts[i];
    if (!cut.overlaps()) continue;
    // A later cut of other dims leaves this one's ranges as they are.
    for (std::size_t later = i + 1; later < placement.cuts.size(); ++later)
      if (placement.cuts[later].row > 0 || placement.cuts[later].dim == cut.dim)
        throw InternalError({placement.name, "is cut further where ranks share elements", "one cut of that dim", ""});
    std::vector<std::string> axes;
    for (const auto& axis : cut.axes) axes.push_back(axis.name);
    sum_overlaps(local, cut, mesh.group(std::move(axes)));
  }
}

}  // namespace gantry
