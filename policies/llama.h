// The policy of models::Llama. Stages exchange {hidden [B, S, H]}.
#pragma once

#include "gantry/models/llama.h"
#include "gantry/policies/policy.h"

namespace gantry {

class LlamaPolicy final : public PolicyFor<models::LlamaImpl> {
 public:
  std::string name() const override { return "LlamaPolicy"; }
  ShardPlan shard_plan(const models::LlamaImpl& model) const override;
  StageLayout stage_layout(const models::LlamaImpl& model) const override;
  SharedParameters shared_parameters(const models::LlamaImpl& model) const override;
  std::vector<SplitOutput> split_outputs(const models::LlamaImpl& model) const override;
  Continuation continuation(const models::LlamaImpl& model) const override;
  TensorDict forward(models::LlamaImpl& model, const StageContext& stage, TensorDict input) const override;
  std::vector<std::string> entries_between() const override { return {"attention_mask"}; }
};

}  // namespace gantry
