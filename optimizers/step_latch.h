// Makes a boosted optimizer reject a step() of the program. Only BoostedOptimizer::step() clips gradients,
// checks for values that are not finite, and copies stepped values to the parameters. Under ZeRO or in a low
// precision the optimizer's own step() would silently train nothing.
//
// LibTorch's optimizers have no hooks, but each of them reads the gradient of every parameter. Therefore an
// empty tensor is added to the first group. Reading its gradient succeeds while the latch is open and throws
// while it is closed. zero_grad() requests the gradient for writing; this call is forwarded.
#pragma once

#include <functional>
#include <memory>

#include <torch/optim/optimizer.h>

namespace gantry {

class StepLatch {
 public:
  // Adds the tensor to the optimizer, with the latch closed. `zero_grad` is called by the optimizer's
  // zero_grad().
  StepLatch(torch::optim::Optimizer& optimizer, std::function<void()> zero_grad);
  // Leaves the latch open permanently.
  ~StepLatch();
  StepLatch(const StepLatch&) = delete;
  StepLatch& operator=(const StepLatch&) = delete;

  // Runs `step`, a step of the optimizer, with the latch open.
  void open_for(const std::function<void()>& step);

  struct State {
    bool open = false;
    std::function<void()> zero_grad;
  };

 private:
  std::shared_ptr<State> state_;
};

}  // namespace gantry
