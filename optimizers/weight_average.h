// The exponential moving average of parameters or their master weights (`train.ema`).
#pragma once

#include <map>

#include "gantry/tensors/tensor.h"

namespace gantry {

class WeightAverage {
 public:
  explicit WeightAverage(double decay) : decay_(decay) {}

  // The average of a parameter or its master weight, with the same type and part. It starts as a copy of the values
  // that `stepped` has at the first call.
  torch::Tensor& of(const torch::Tensor& stepped);
  // After a step: average = decay * average + (1 - decay) * values.
  void add(const torch::Tensor& stepped);
  // Exchanges the values of the two. A second call restores them exactly.
  void exchange(const torch::Tensor& stepped);

 private:
  double decay_;
  std::map<const void*, torch::Tensor> averages_;
};

}  // namespace gantry
