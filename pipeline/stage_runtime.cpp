#include "gantry/pipeline/stage_runtime.h"

#include <torch/torch.h>

#include "gantry/core/error.h"

namespace gantry {

void StageRuntime::extra(const schedule::Action& action) {
  throw InternalError(
      {"stage runtime", "it cannot run the action " + to_string(action), "a schedule without this action", ""});
}

BackwardRoots backward_roots(const StageOutput& output, const TensorDict& gradients) {
  BackwardRoots of;
  if (output.root.defined() && output.root.requires_grad()) {
    of.roots.push_back(output.root);
    of.seeds.push_back(torch::ones_like(output.root));
  }
  for (const auto& [name, tensor] : output.boundary) {
    const torch::Tensor gradient = gradients.get(name);
    if (!tensor.defined() || !tensor.requires_grad() || !gradient.defined()) continue;
    of.roots.push_back(tensor);
    of.seeds.push_back(gradient);
  }
  return of;
}

TensorDict gradients_of(const TensorDict& input) {
  TensorDict gradients;
  for (const auto& [name, tensor] : input)
    if (tensor.defined() && tensor.requires_grad()) gradients.set(name, tensor.grad());
  return gradients;
}

TensorDict run_backward(const TensorDict& input, const StageOutput& output, const TensorDict& gradients) {
  const BackwardRoots from = backward_roots(output, gradients);
  if (!from.roots.empty()) torch::autograd::backward(from.roots, from.seeds);
  return gradients_of(input);
}

}  // namespace gantry
