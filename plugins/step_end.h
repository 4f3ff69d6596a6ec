// Values that ranks exchange at the end of a step.
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
  bool aborted = false;  // true if any rank has aborted the step
  bool unsent = false;   // any rank has gradients that no reduction has taken (ZeRO 2)
};
// Takes the numbers of this rank, and returns those of all ranks. `counted`: tokens of this rank's last stage
// since gradients were zeroed. Collective over dp and pp.
StepEnd agree_on_end(const StepEnd& mine, const ProcessGroupMesh& mesh);

// Sums of losses on one rank: one scalar per microbatch, on the device that computed it.
struct StepLosses {
  std::vector<torch::Tensor> criterion;
  std::map<std::string, std::vector<torch::Tensor>> added;  // by the names passed to add_loss()
};
struct TotalLoss {
  double sum = 0, count = 0;            // over all ranks
  std::map<std::string, double> added;  // parts of the sum
  ExpertLoads experts;                  // loads of the synced step
};
// Reads the losses of a step, summed over the ranks. `losses`: computed by this rank's stages. `counted`:
// tokens of its last stage. The step has no other device-to-host read, so this one also transfers the norms
// of `synced`'s gradients and the counts of `routers`, unless these are null. `names`: names of losses that
// ranks have added in earlier steps, the same on all ranks. New names are exchanged once. Collective over dp
// and pp.
TotalLoss read_loss(const StepLosses& losses, std::int64_t counted, BoostedOptimizer* synced,
                    const ModelRouters* routers, std::vector<std::string>& names, const ProcessGroupMesh& mesh);

}  // namespace gantry
