#include "gantry/policies/plan_policy.h"

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

ModelSplit PlanPolicy::split(const torch::nn::Module& model) const {
  ModelSplit split{.shards = plan_};
  std::vector<std::string>& all = split.stages.first;
  for (const auto& child : model.named_children()) all.push_back(child.key());
  for (const auto& own : model.named_parameters(/*recurse=*/false)) all.push_back(own.key());
  for (const auto& own : model.named_buffers(/*recurse=*/false)) all.push_back(own.key());
  return split;
}

// The model has no layers.
std::vector<int> PlanPolicy::distribute_layers(int, int stages) const { return std::vector<int>(stages, 0); }

TensorDict PlanPolicy::forward(torch::nn::Module& model, const StageContext&, TensorDict) const {
  throw UsageError({model.name(), "the model was boosted with a shard plan, which has no forward for stages", "",
                    "call the model's own forward; or register a policy for its class with gantry::policies().add"});
}

}  // namespace gantry
