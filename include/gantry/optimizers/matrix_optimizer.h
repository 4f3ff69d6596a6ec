// The base of optimizers that update full matrices in a way of their own, and all other parameters by AdamW.
#pragma once

#include <torch/optim/adamw.h>

#include "gantry/optimizers/optimizer_tensors.h"

namespace gantry {

// A group whose options are of class torch::optim::AdamWOptions is updated by AdamW. All other groups are "own" groups:
// a derived class updates them. Derived classes keep their state in Optimizer::state(). Parameters without a gradient
// are skipped, as in LibTorch's optimizers.
class MatrixOptimizer : public torch::optim::Optimizer, public StatefulOptimizer {
 public:
  torch::Tensor step(LossClosure closure = nullptr) final;
  NamedTensors state_tensors(const torch::Tensor& parameter) final;
  void set_steps(const torch::Tensor& parameter, std::int64_t steps) final;
  std::optional<std::int64_t> steps_taken(const torch::Tensor& parameter) final;
  OptimizerUnit unit(const torch::optim::OptimizerParamGroup& group) const final;

 protected:
  using Options = torch::optim::OptimizerOptions;

  MatrixOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups, std::unique_ptr<Options> defaults);
  // Throws UsageError if the options of a group are neither AdamWOptions nor of class Own. `name`: of the optimizer;
  // that of Own is `name` with "Options".
  template <class Own>
  void require_options(const char* name) const {
    for (const auto& group : param_groups_)
      if (!dynamic_cast<const torch::optim::AdamWOptions*>(&group.options()) &&
          !dynamic_cast<const Own*>(&group.options()))
        refuse_options(name);
  }

  // --- Own groups ---
  virtual void update(torch::Tensor& parameter, const torch::Tensor& gradient, const Options& options) = 0;
  // As StatefulOptimizer::state_tensors(), set_steps() and steps_taken().
  virtual NamedTensors own_tensors(const torch::Tensor& parameter) = 0;
  virtual void set_own_steps(const torch::Tensor& /*parameter*/, std::int64_t /*steps*/) {}
  virtual std::optional<std::int64_t> own_steps(const torch::Tensor& /*parameter*/) { return std::nullopt; }
  virtual OptimizerUnit own_unit() const = 0;

  // Returns the state of a parameter; creates it by default if it does not exist yet.
  template <class State>
  State& own_state(const torch::Tensor& parameter) {
    auto& entry = state_[parameter.unsafeGetTensorImpl()];
    if (!entry) entry = std::make_unique<State>();
    return static_cast<State&>(*entry);
  }

 private:
  [[noreturn]] static void refuse_options(const std::string& name);
  // Null for a parameter of an own group, and for one in no group.
  const torch::optim::AdamWOptions* adamw_options(const torch::Tensor& parameter) const;
};

}  // namespace gantry
