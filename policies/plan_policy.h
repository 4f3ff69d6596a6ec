// A policy that consists of a shard plan only, for models whose own forward is called by a custom training
// loop.
#pragma once

#include <string>
#include <vector>

#include "gantry/policies/policy.h"

namespace gantry {

// The full model is one stage. forward() throws UsageError, because there is no forward per stage:
// execute_pipeline() and generate() need a policy for the class of the model.
class PlanPolicy final : public Policy {
 public:
  explicit PlanPolicy(ShardPlan plan) : plan_(std::move(plan)) {}

  std::string name() const override { return "PlanPolicy"; }
  ModelSplit split(const torch::nn::Module& model) const override;
  std::vector<int> distribute_layers(int layers, int stages) const override;
  TensorDict forward(torch::nn::Module& model, const StageContext& stage, TensorDict input) const override;

 private:
  ShardPlan plan_;
};

}  // namespace gantry
