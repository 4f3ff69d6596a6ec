// What ranks tell each other at the end of a step.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/plugins/boosted.h"
#include "gantry/plugins/model_routers.h"

namespace gantry {

struct StepEnd {
  double counted = 0;    // tokens of all ranks
  bool aborted = false;  // by any rank
  bool unsent = false;   // any rank has gradients that no reduction has taken (ZeRO 2)
};
// The numbers of this rank, which become those of all ranks. `counted`: tokens of this rank's last stage since
// gradients were zeroed. Collective over dp and pp.
StepEnd agree_on_end(const StepEnd& mine, const ProcessGroupMesh& mesh);

// Sums of losses on one rank: scalars where they were computed, of microbatches.
struct StepLosses {
  std::vector<torch::Tensor> criterion;
  std::map<std::string, std::vector<torch::Tensor>> added;  // by the names that add_loss was given
};
struct TotalLoss {
  double sum = 0, count = 0;            // over all ranks
  std::map<std::string, double> added;  // parts of the sum
  ExpertLoads experts;                  // of the step that was synced
};
// `losses`: those that this rank's stages made; `counted`: tokens of its last stage. One look at the device is all that
// a step affords: it takes the norms of `synced`'s gradients along, and what `routers` have counted, unless those are
// null. `names`: of losses that ranks have added in steps before, the same on all; the ranks tell each other of others
// once. Collective over dp and pp.
TotalLoss read_loss(const StepLosses& losses, std::int64_t counted, BoostedOptimizer* synced,
                    const ModelRouters* routers, std::vector<std::string>& names, const ProcessGroupMesh& mesh);

}  // namespace gantry
