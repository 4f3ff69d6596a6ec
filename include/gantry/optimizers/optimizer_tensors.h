// The state of any optimizer per parameter, for checkpoints, and the unit that its step needs in full.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

namespace gantry {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// The unit that a step processes together. kElement: single elements, as in Adam. kRow: the last dimension. kMatrix:
// the last two dimensions, as in Muon; earlier dimensions count matrices.
enum class OptimizerUnit { kElement, kRow, kMatrix };

// Derive your own optimizer from this class, in addition to torch::optim::Optimizer, to include it in checkpoints and
// to state its unit. With tp, expert parallelism or ZeRO, boost() throws UsageError for an optimizer of an unknown
// unit. LibTorch's Adam, AdamW, SGD, RMSprop and Adagrad are supported without it.
class StatefulOptimizer {
 public:
  virtual ~StatefulOptimizer() = default;
  // Returns the state tensors, with the shape of the parameter. Creates them with zeros if they do not exist yet.
  // Loading writes to them.
  virtual NamedTensors state_tensors(const torch::Tensor& parameter) = 0;
  // Returns the dimension of the parameter that the state tensor `name` lacks, if there is one: -1, the last one, or
  // -2, the second to last one. Only for the unit kMatrix. The state of an empty parameter is empty.
  virtual std::optional<int> missing_dim(const std::string& /*name*/) const { return std::nullopt; }
  // Sets the number of steps taken, if the optimizer counts them.
  virtual void set_steps(const torch::Tensor& /*parameter*/, std::int64_t /*steps*/) {}
  // Returns that number; empty if the optimizer does not count steps.
  virtual std::optional<std::int64_t> steps_taken(const torch::Tensor& /*parameter*/) { return std::nullopt; }
  // Returns the unit of a step for this group. Override it if the update of an element depends on others, as in LAMB or
  // LARS. If ranks hold parts of a unit, one rank gets the full unit and updates
  // it; the other ranks then have an empty tensor.
  virtual OptimizerUnit unit(const torch::optim::OptimizerParamGroup& /*group*/) const {
    return OptimizerUnit::kElement;
  }
};

// Throws UsageError for an unknown optimizer.
NamedTensors optimizer_tensors(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter);
// Returns StatefulOptimizer::missing_dim(); empty for LibTorch's optimizers.
std::optional<int> missing_dim(const torch::optim::Optimizer& optimizer, const std::string& name);
void set_optimizer_steps(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter, std::int64_t steps);
// Returns the step count of a parameter; empty if the optimizer does not count steps (SGD, Lion).
std::optional<std::int64_t> optimizer_steps(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter);
// Returns true for optimizers that optimizer_tensors() supports: StatefulOptimizers, and LibTorch's Adam, AdamW, SGD,
// RMSprop and Adagrad. A class derived from one of these may have a state of its own: it must be a StatefulOptimizer.
bool is_saved_optimizer(const torch::optim::Optimizer& optimizer);
// Throws UsageError for an optimizer that cannot be saved.
[[noreturn]] void refuse_unsaved_optimizer(const torch::optim::Optimizer& optimizer, const std::string& where);
// The constructor of Adagrad creates state for the full parameters, and its step requires state for all. Removes it, if
// no step was taken, so that the parameters can be sharded, and creates the missing state before a step. No effect for
// other optimizers.
void forget_initial_state(torch::optim::Optimizer& optimizer);
void make_initial_state(torch::optim::Optimizer& optimizer);
// Returns true for a StatefulOptimizer, and for LibTorch's classes that step each element by itself: Adam, AdamW, SGD,
// RMSprop and Adagrad, but not classes derived from them. The units of other optimizers are unknown.
bool is_known_optimizer(const torch::optim::Optimizer& optimizer);
// Returns kElement for LibTorch's optimizers, and for others that do not override unit().
OptimizerUnit optimizer_unit(const torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group);

}  // namespace gantry
