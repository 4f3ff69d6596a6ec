// AdamW whose two averages are in bfloat16: half of AdamW's state. An average changes by a small fraction in each step,
// often by less than half of the distance between two bfloat16 numbers, and would then never change if it were rounded
// to the nearest one. So it is rounded up or down at random, with the probability that makes the expected value exact
// (stochastic rounding: Zamirai et al., Revisiting BFloat16 Training, arXiv 2010.06192).
//
// The random bits are a hash of the number of the step and of the leading bits of the average, the gradient and the
// parameter. So the result does not depend on the layout or on a generator, and a resumed run continues identically.
#pragma once

#include <torch/optim/adamw.h>

#include "gantry/optimizers/optimizer_tensors.h"

namespace gantry {

struct AdamWBf16State : public torch::optim::OptimizerCloneableParamState<AdamWBf16State> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(torch::Tensor, exp_avg);     // bfloat16, with the shape of the parameter
  TORCH_ARG(torch::Tensor, exp_avg_sq);  // the same
};

// The options are those of AdamW. The step is computed in float32, or in float64 for parameters of that type.
class AdamWBf16 : public torch::optim::Optimizer, public StatefulOptimizer {
 public:
  // Throws UsageError for a group with amsgrad.
  explicit AdamWBf16(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                     const torch::optim::AdamWOptions& defaults = {});
  explicit AdamWBf16(std::vector<torch::Tensor> parameters, const torch::optim::AdamWOptions& defaults = {})
      : AdamWBf16({torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}

  // Parameters without a gradient are skipped, as in LibTorch's optimizers.
  torch::Tensor step(LossClosure closure = nullptr) override;
  NamedTensors state_tensors(const torch::Tensor& parameter) override;
  void set_steps(const torch::Tensor& parameter, std::int64_t steps) override;
  std::optional<std::int64_t> steps_taken(const torch::Tensor& parameter) override;

 private:
  AdamWBf16State& state_of(const torch::Tensor& parameter);
};

}  // namespace gantry
