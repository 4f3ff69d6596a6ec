#include "gantry/nn/weight_gradient.h"

#include <utility>

#include <torch/torch.h>

namespace gantry::nn {
namespace {

thread_local WeightGradientStore* current = nullptr;

}  // namespace

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

WeightGradientStore* weight_gradient_store() { return current; }

WeightGradientStoreGuard::WeightGradientStoreGuard(WeightGradientStore* store) : former_(current) { current = store; }
WeightGradientStoreGuard::~WeightGradientStoreGuard() { current = former_; }

}  // namespace gantry::nn
