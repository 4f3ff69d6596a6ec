#include "gantry/plugins/joint_samples.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/nn/gather_samples.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

bool share_samples(const torch::nn::Module& model, const ProcessGroupMesh& mesh) {
  bool found = false;
  for (const auto& module : model.modules())
    if (auto* samples = dynamic_cast<nn::GatherSamplesImpl*>(module.get())) {
      samples->set_replicas(mesh[axis::kData]);
      found = true;
    }
  if (found && mesh.size(axis::kPipeline) > 1)
    throw ConfigError({"parallel.pipeline",
                       fmt::format("the value is {}, but the loss of the model compares all samples of a step",
                                   mesh.size(axis::kPipeline)),
                       "1 for this model", "remove parallel.pipeline"});
  return found;
}

void refuse_parts_of_samples(int microbatches, bool adds) {
  if (microbatches <= 1 && !adds) return;
  throw ConfigError({"schedule.microbatches",
                     adds
                         ? "several calls add up gradients, but the loss of the model compares all samples of a step"
                         : fmt::format("there are {} microbatches, but the loss of the model compares all samples of a "
                                       "step",
                                       microbatches),
                     "one microbatch and one call for each step", "set schedule.microbatches to 1, and add replicas"});
}

}  // namespace gantry
