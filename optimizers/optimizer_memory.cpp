#include "gantry/optimizers/optimizer_memory.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "gantry/optimizers/adafactor.h"
#include "gantry/optimizers/adamw_8bit.h"
#include "gantry/optimizers/adamw_bf16.h"
#include "gantry/optimizers/lion.h"
#include "gantry/optimizers/muon.h"

namespace gantry {
namespace {

// The number of tensors of a parameter's size that LibTorch's optimizers, Lion and Muon keep for it.
int tensors_kept(torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group) {
  if (const auto* by_adamw = dynamic_cast<const torch::optim::AdamWOptions*>(&group.options()))
    return by_adamw->amsgrad() ? 3 : 2;
  if (dynamic_cast<torch::optim::Adam*>(&optimizer))
    return static_cast<const torch::optim::AdamOptions&>(group.options()).amsgrad() ? 3 : 2;
  if (dynamic_cast<torch::optim::SGD*>(&optimizer))
    return static_cast<const torch::optim::SGDOptions&>(group.options()).momentum() != 0 ? 1 : 0;
  if (dynamic_cast<torch::optim::RMSprop*>(&optimizer)) {
    const auto& options = static_cast<const torch::optim::RMSpropOptions&>(group.options());
    return 1 + (options.momentum() > 0 ? 1 : 0) + (options.centered() ? 1 : 0);
  }
  const bool keeps_one = dynamic_cast<torch::optim::Adagrad*>(&optimizer) || dynamic_cast<Muon*>(&optimizer) ||
                         dynamic_cast<Lion*>(&optimizer);
  return keeps_one ? 1 : 0;
}

// The bytes of the state of a parameter.
std::int64_t bytes_kept(torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group,
                        const torch::Tensor& parameter) {
  const std::int64_t elements = parameter.numel(), item = static_cast<std::int64_t>(parameter.element_size());
  if (elements == 0) return 0;
  const std::int64_t columns = parameter.dim() == 0 ? 1 : parameter.size(-1);
  if (dynamic_cast<const AdamW8bitOptions*>(&group.options())) {
    const std::int64_t blocks = (columns + kAverageBlock - 1) / kAverageBlock;
    return 2 * (elements + elements / columns * blocks * item);
  }
  if (dynamic_cast<AdamWBf16*>(&optimizer)) return 2 * elements * 2;
  if (dynamic_cast<const AdafactorOptions*>(&group.options()) && parameter.dim() >= 2)
    return (elements / columns + elements / parameter.size(-2)) * item;
  if (dynamic_cast<const AdafactorOptions*>(&group.options())) return elements * item;
  return tensors_kept(optimizer, group) * elements * item;
}

}  // namespace

OptimizerBytes optimizer_bytes(torch::optim::Optimizer& optimizer) {
  OptimizerBytes bytes;
  for (const auto& group : optimizer.param_groups())
    for (const auto& parameter : group.params()) {
      const std::int64_t of_parameter = bytes_kept(optimizer, group, parameter);
      const bool stepped = optimizer.state().count(parameter.unsafeGetTensorImpl()) > 0;
      if (stepped)
        bytes.held += of_parameter;
      else if (parameter.requires_grad())
        bytes.to_come += of_parameter;
    }
  return bytes;
}

}  // namespace gantry
