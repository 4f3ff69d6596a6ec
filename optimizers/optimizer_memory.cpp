#include "gantry/optimizers/optimizer_memory.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "gantry/optimizers/lion.h"
#include "gantry/optimizers/muon.h"

namespace gantry {
namespace {

// Tensors of a parameter's size that the optimizer keeps for it.
int tensors_kept(torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group) {
  if (dynamic_cast<torch::optim::AdamW*>(&optimizer))
    return static_cast<const torch::optim::AdamWOptions&>(group.options()).amsgrad() ? 3 : 2;
  if (dynamic_cast<torch::optim::Adam*>(&optimizer))
    return static_cast<const torch::optim::AdamOptions&>(group.options()).amsgrad() ? 3 : 2;
  if (dynamic_cast<torch::optim::SGD*>(&optimizer))
    return static_cast<const torch::optim::SGDOptions&>(group.options()).momentum() != 0 ? 1 : 0;
  if (dynamic_cast<torch::optim::RMSprop*>(&optimizer)) {
    const auto& options = static_cast<const torch::optim::RMSpropOptions&>(group.options());
    return 1 + (options.momentum() > 0 ? 1 : 0) + (options.centered() ? 1 : 0);
  }
  if (dynamic_cast<torch::optim::Adagrad*>(&optimizer)) return 1;
  if (dynamic_cast<Muon*>(&optimizer)) {
    const auto* by_adamw = dynamic_cast<const torch::optim::AdamWOptions*>(&group.options());
    return !by_adamw ? 1 : by_adamw->amsgrad() ? 3 : 2;
  }
  return dynamic_cast<Lion*>(&optimizer) ? 1 : 0;
}

}  // namespace

OptimizerBytes optimizer_bytes(torch::optim::Optimizer& optimizer) {
  OptimizerBytes bytes;
  for (const auto& group : optimizer.param_groups()) {
    const int kept = tensors_kept(optimizer, group);
    for (const auto& parameter : group.params()) {
      const auto of_parameter = kept * static_cast<std::int64_t>(parameter.nbytes());
      const bool stepped = optimizer.state().count(parameter.unsafeGetTensorImpl()) > 0;
      if (stepped)
        bytes.held += of_parameter;
      else if (parameter.requires_grad())
        bytes.to_come += of_parameter;
    }
  }
  return bytes;
}

}  // namespace gantry
