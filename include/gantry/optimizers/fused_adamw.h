// torch::optim::AdamW, with the same options and state, whose step uses LibTorch's fused kernel.
#pragma once

#include <torch/optim/adamw.h>

namespace gantry {

class FusedAdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  // Parameters without a gradient are skipped, as in LibTorch's optimizers.
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace gantry
