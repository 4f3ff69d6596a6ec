#include "gantry/optimizers/ready_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace gantry {
namespace {

// Called after a backward has accumulated the parameter's gradient, also if the layer's own backward has
// added it and has returned no gradient to autograd.
class ReadyHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  ReadyHook(std::weak_ptr<GradientBuffers> gradients, std::size_t parameter)
      : gradients_(std::move(gradients)), parameter_(parameter) {}
  void operator()(const torch::autograd::Variable&) override {
    if (const auto gradients = gradients_.lock()) gradients->parameter_reached(parameter_);
  }

 private:
  std::weak_ptr<GradientBuffers> gradients_;
  std::size_t parameter_;
};

}  // namespace

void report_ready_gradients(const std::shared_ptr<GradientBuffers>& gradients) {
  for (std::size_t i = 0; i < gradients->parameters().size(); ++i)
    if (gradients->parameters()[i].tensor.is_floating_point())
      torch::autograd::impl::set_post_acc_grad_hooks(gradients->parameters()[i].tensor,
                                                     std::make_unique<ReadyHook>(gradients, i));
}

}  // namespace gantry
