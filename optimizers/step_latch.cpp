#include "gantry/optimizers/step_latch.h"

#include <torch/csrc/autograd/variable.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

class LatchedGradient final : public torch::autograd::AutogradMeta {
 public:
  explicit LatchedGradient(std::shared_ptr<StepLatch::State> state) : state_(std::move(state)) {}

  const torch::autograd::Variable& grad() const override {
    if (!state_->open)
      throw UsageError(
          {"optimizer", "step() was called on the optimizer that was passed to boost", "",
           "call boosted.optimizer->step(), which clips the gradients and updates the parameters of this rank"});
    return AutogradMeta::grad();
  }
  torch::autograd::Variable& mutable_grad() override {
    if (!state_->open && state_->zero_grad) state_->zero_grad();
    return AutogradMeta::mutable_grad();
  }

 private:
  std::shared_ptr<StepLatch::State> state_;
};

}  // namespace

StepLatch::StepLatch(torch::optim::Optimizer& optimizer, std::function<void()> zero_grad)
    : state_(std::make_shared<State>()) {
  state_->zero_grad = std::move(zero_grad);
  const torch::Tensor latch = torch::empty({0});
  latch.unsafeGetTensorImpl()->set_autograd_meta(std::make_unique<LatchedGradient>(state_));
  auto& parameters = optimizer.param_groups().front().params();
  parameters.insert(parameters.begin(), latch);
}

StepLatch::~StepLatch() {
  state_->open = true;
  state_->zero_grad = nullptr;
}

void StepLatch::open_for(const std::function<void()>& step) {
  struct Opening {
    explicit Opening(State& latch) : opened(latch) { opened.open = true; }
    ~Opening() { opened.open = false; }
    State& opened;
  };
  const Opening opening(*state_);
  step();
}

}  // namespace gantry
