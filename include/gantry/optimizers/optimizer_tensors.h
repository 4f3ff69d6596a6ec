// What an optimizer keeps of one parameter, for checkpoints, and what it must see at once: whatever the optimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

namespace gantry {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// What a step treats as one. kElement: each element by itself, as Adam does. kRow: what lies along the last dim.
// kMatrix: the last two dims, as Muon does; the dims before them count matrices.
enum class OptimizerUnit { kElement, kRow, kMatrix };

// An optimizer of one's own joins checkpoints by deriving from this beside torch::optim::Optimizer. LibTorch's Adam,
// AdamW and SGD are known without it.
class StatefulOptimizer {
 public:
  virtual ~StatefulOptimizer() = default;
  // Live tensors of the parameter's shape, made (zero) if there are none yet.
  virtual NamedTensors state_tensors(const torch::Tensor& parameter) = 0;
  // The steps that were taken, where the optimizer counts them.
  virtual void set_steps(const torch::Tensor& parameter, std::int64_t steps) = 0;
  // That count; nothing where it does not count, or does not say.
  virtual std::optional<std::int64_t> steps_taken(const torch::Tensor& /*parameter*/) { return std::nullopt; }
  // What a step of that group's parameters must see at once. Where ranks hold parts of it, one of them gets the
  // whole and steps it; the others have an empty tensor then.
  virtual OptimizerUnit unit(const torch::optim::OptimizerParamGroup& /*group*/) const {
    return OptimizerUnit::kElement;
  }
};

// UsageError for an optimizer whose state is not known.
NamedTensors optimizer_tensors(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter);
void set_optimizer_steps(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter, std::int64_t steps);
// Of one parameter; nothing where the optimizer does not count them, as SGD and Lion.
std::optional<std::int64_t> optimizer_steps(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter);
// LibTorch's optimizers, and those of one's own that don't say, treat elements alike.
OptimizerUnit optimizer_unit(const torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group);

}  // namespace gantry
