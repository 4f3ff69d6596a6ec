// The policy of models::Llama.
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
  std::vector<std::string> entries_between() const override {
    return {"attention_mask", "document_ids", "position_ids"};
  }
};

}  // namespace gantry
