#include "gantry/tensors/lazy_gradient.h"

#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/released_memory.h"

namespace gantry {

struct LazyGradient::State {
  ReleasedMemory memory;
  torch::Tensor gradient;
  bool shown = false, hooked = false;

  void bring() {
    if (memory.is_there()) return;
    const torch::NoGradGuard no_grad;
    memory.bring();
    gradient.zero_();
  }
};

// A hook of the gradient that is never called. It leads from the gradient to the State that allocates the
// memory.
class LazyGradient::Tag final : public torch::autograd::FunctionPreHook {
 public:
  explicit Tag(State& state) : state_(state) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& given) override { return given; }
  void bring() { state_.bring(); }

 private:
  State& state_;  // owns the gradient
};

LazyGradient::LazyGradient(torch::Tensor parameter, torch::ScalarType type, std::string error)
    : parameter_(std::move(parameter)),
      state_(std::make_shared<State>(State{
          .memory = ReleasedMemory(parameter_.numel(), type, parameter_.device(), std::move(error)), .gradient = {}})) {
  state_->gradient = state_->memory.over(0, parameter_.sizes());
  torch::autograd::impl::add_hook(state_->gradient, std::make_unique<Tag>(*state_));
}

// Autograd calls the hooks of a parameter before it adds to its gradient. `added` is undefined if the layer
// has added the gradient itself.
void LazyGradient::show() {
  parameter_.mutable_grad() = state_->gradient;
  state_->shown = true;
  if (std::exchange(state_->hooked, true)) return;
  parameter_.register_hook([weak = std::weak_ptr(state_)](const torch::Tensor& added) {
    if (const auto state = weak.lock(); state && state->shown && added.defined()) state->bring();
  });
}

const torch::Tensor& LazyGradient::values() {
  state_->bring();
  return state_->gradient;
}

bool LazyGradient::has_values() const { return state_->memory.is_there(); }

void LazyGradient::clear() { state_->memory.release(); }

void LazyGradient::hide() {
  if (std::exchange(state_->shown, false)) parameter_.mutable_grad().reset();
}

const torch::Tensor& LazyGradient::gradient() const { return state_->gradient; }

void bring_lazy_gradient(const torch::Tensor& parameter) {
  const torch::Tensor& gradient = parameter.grad();
  if (!gradient.defined() || !torch::autograd::impl::get_autograd_meta(gradient)) return;
  for (const auto& hook : torch::autograd::impl::hooks(gradient))
    if (auto* const tag = dynamic_cast<LazyGradient::Tag*>(hook.get())) tag->bring();
}

}  // namespace gantry
