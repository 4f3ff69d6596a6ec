#include "gantry/nn/weight_gradient.h"

#include <utility>

#include <torch/torch.h>

namespace gantry::nn {

void WeightGradientStore::add(std::function<void()> work) {
  if (collects_)
    kept_.push_back(std::move(work));
  else
    work();
}

void WeightGradientStore::run(const std::function<void()>& after_each) {
  const torch::NoGradGuard no_grad;
  for (auto& work : std::exchange(kept_, {})) {
    work();
    work = {};
    if (after_each) after_each();
  }
}

}  // namespace gantry::nn
