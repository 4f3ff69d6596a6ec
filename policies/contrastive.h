// The policy of models::Contrastive.
#pragma once

#include "gantry/models/vision/contrastive.h"
#include "gantry/policies/policy.h"

namespace gantry {

class ContrastivePolicy final : public PolicyFor<models::ContrastiveImpl> {
 public:
  explicit ContrastivePolicy(std::string family) : family_(std::move(family)) {}
  std::string name() const override { return "ContrastivePolicy"; }
  PolicyFit fit(const torch::nn::Module& model) const override;
  void validate_model(const models::ContrastiveImpl& model) const override;
  ShardPlan shard_plan(const models::ContrastiveImpl& model) const override;
  StageLayout stage_layout(const models::ContrastiveImpl& model) const override;
  Continuation continuation(const models::ContrastiveImpl&) const override { return {.is_possible = false}; }
  std::int64_t tokens_per_sample(const TensorDict&) const override { return 1; }
  std::vector<std::string> entries_between() const override { return {}; }

 private:
  std::string family_;
};

}  // namespace gantry
