#include "gantry/optimizers/fused_adamw.h"

#include <torch/torch.h>

#include "gantry/optimizers/adamw_step.h"
#include "gantry/optimizers/closure_loss.h"

namespace gantry {

torch::Tensor FusedAdamW::step(LossClosure closure) {
  const torch::Tensor loss = closure_loss(closure);
  const torch::NoGradGuard no_grad;
  for (auto& group : param_groups_)
    step_by_adamw(group.params(), state_, static_cast<const torch::optim::AdamWOptions&>(group.options()));
  return loss;
}

}  // namespace gantry
