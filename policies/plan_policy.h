// A policy that is a shard plan and no more: for models that a loop of the user's runs by their own forward.
#pragma once

#include <string>
#include <vector>

#include "gantry/policies/policy.h"

namespace gantry {

// All of a model is one stage. forward() is a UsageError: there is no stage-aware one, so that execute_pipeline and
// generate() need a policy for the model's class.
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
