// What ranks tell each other at the end of a step.
#pragma once

#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/plugins/boosted.h"

namespace gantry {

struct StepEnd {
  double counted = 0;     // tokens of all ranks
  bool given_up = false;  // by any rank
};
// `counted`: tokens of this rank's last stage since gradients were zeroed. Collective over dp and pp.
StepEnd agree_on_end(std::int64_t counted, bool given_up, const ProcessGroupMesh& mesh);

struct TotalLoss {
  double sum = 0, count = 0;  // over all ranks
};
// `losses`: scalars that this rank's stages made; `counted`: tokens of its last stage. One look at the device is all
// that a step affords: it takes the norms of `synced`'s gradients along, unless that is null. Collective over dp and
// pp.
TotalLoss read_loss(std::vector<torch::Tensor> losses, std::int64_t counted, BoostedOptimizer* synced,
                    const ProcessGroupMesh& mesh);

}  // namespace gantry
