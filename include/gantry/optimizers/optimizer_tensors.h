// What an optimizer keeps of one parameter, for checkpoints: by name, whatever the optimizer.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

namespace gantry {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// An optimizer of one's own joins checkpoints by deriving from this beside torch::optim::Optimizer. LibTorch's Adam,
// AdamW and SGD are known without it.
class StatefulOptimizer {
 public:
  virtual ~StatefulOptimizer() = default;
  // Live tensors of the parameter's shape, made (zero) if there are none yet.
  virtual NamedTensors state_tensors(const torch::Tensor& parameter) = 0;
  // The steps that were taken, where the optimizer counts them.
  virtual void set_steps(const torch::Tensor& parameter, std::int64_t steps) = 0;
};

// UsageError for an optimizer whose state is not known.
NamedTensors optimizer_tensors(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter);
void set_optimizer_steps(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter, std::int64_t steps);

}  // namespace gantry
