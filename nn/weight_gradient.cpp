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

void add_product(torch::Tensor& into, const torch::Tensor& a, const torch::Tensor& b) {
  if (into.scalar_type() == a.scalar_type())
    into.addmm_(a, b);
  else
    into.add_(at::mm(a, b));
}

torch::Tensor give_gradient(const torch::Tensor& parameter, WeightGradientStore* store,
                            std::function<void(torch::Tensor&)> add, const std::function<torch::Tensor()>& make) {
  if (!parameter.defined() || !parameter.requires_grad()) return {};
  if (!parameter.is_leaf()) return make();
  now_or_later(store, [parameter, add = std::move(add)] { add(gradient_of(parameter)); });
  return {};
}

}  // namespace gantry::nn
