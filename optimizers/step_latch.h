// Has an optimizer that was boosted refuse a step() of its user's. Only BoostedOptimizer::step() clips, looks for what
// is not finite, and brings stepped values to where they are used; under ZeRO or in a low precision the optimizer's own
// step() would train nothing, without a word.
//
// LibTorch's optimizers have no hooks, but each of them asks every parameter for its gradient. So one empty tensor
// joins the first group, which answers that question while the latch is open and throws while it is closed. zero_grad()
// asks for the gradient to write it: that is passed on.
#pragma once

#include <functional>
#include <memory>

#include <torch/optim/optimizer.h>

namespace gantry {

class StepLatch {
 public:
  // Joins the optimizer, closed. `zero_grad` is called by the optimizer's zero_grad().
  StepLatch(torch::optim::Optimizer& optimizer, std::function<void()> zero_grad);
  // Leaves it open for good.
  ~StepLatch();
  StepLatch(const StepLatch&) = delete;
  StepLatch& operator=(const StepLatch&) = delete;

  // Runs `step`, a step of the optimizer, while it is open.
  void open_for(const std::function<void()>& step);

  struct State {
    bool open = false;
    std::function<void()> zero_grad;
  };

 private:
  std::shared_ptr<State> state_;
};

}  // namespace gantry
