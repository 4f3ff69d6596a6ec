#include "gantry/optimizers/weight_average.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {

torch::Tensor& WeightAverage::of(const torch::Tensor& stepped) {
  torch::Tensor& average = averages_[stepped.unsafeGetTensorImpl()];
  if (!average.defined()) average = stepped.detach().clone();
  return average;
}

void WeightAverage::add(const torch::Tensor& stepped) {
  const torch::NoGradGuard no_grad;
  of(stepped).lerp_(stepped, 1 - decay_);
}

void WeightAverage::exchange(const torch::Tensor& stepped) {
  const torch::NoGradGuard no_grad;
  torch::Tensor& average = of(stepped);
  const torch::Tensor values = stepped.detach().clone();
  stepped.copy_(average);
  average.copy_(values);
}

}  // namespace gantry
