#include "gantry/pipeline/stage_runtime.h"

#include <torch/torch.h>

#include "gantry/core/error.h"

namespace gantry {

void StageRuntime::extra(const schedule::Action& action) {
  throw InternalError({"stage runtime", "does not know " + to_string(action), "a schedule without it", ""});
}

TensorDict run_backward(const TensorDict& input, const StageOutput& output, const TensorDict& gradients) {
  std::vector<torch::Tensor> roots, seeds;
  if (output.root.defined() && output.root.requires_grad()) {
    roots.push_back(output.root);
    seeds.push_back(torch::ones_like(output.root));
  }
  for (const auto& [name, tensor] : output.boundary) {
    const torch::Tensor gradient = gradients.get(name);
    if (!tensor.defined() || !tensor.requires_grad() || !gradient.defined()) continue;
    roots.push_back(tensor);
    seeds.push_back(gradient);
  }
  if (!roots.empty()) torch::autograd::backward(roots, seeds);
  TensorDict input_gradients;
  for (const auto& [name, tensor] : input)
    if (tensor.defined() && tensor.requires_grad()) input_gradients.set(name, tensor.grad());
  return input_gradients;
}

}  // namespace gantry
