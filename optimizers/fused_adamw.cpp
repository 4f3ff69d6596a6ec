#include "gantry/optimizers/fused_adamw.h"

#include "gantry/optimizers/adamw_step.h"
#include "gantry/optimizers/closure_loss.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

torch::Tensor FusedAdamW::step(LossClosure closure) {
  const torch::Tensor loss = closure_loss(closure);
  step_by_adamw(*this);
  return loss;
}

}  // namespace gantry
