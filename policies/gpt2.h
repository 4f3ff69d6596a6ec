// The policy of models::Gpt2.
#pragma once

#include "gantry/models/gpt2.h"
#include "gantry/policies/policy.h"

namespace gantry {

class Gpt2Policy final : public PolicyFor<models::Gpt2Impl> {
 public:
  std::string name() const override { return "Gpt2Policy"; }
  ShardPlan shard_plan(const models::Gpt2Impl& model) const override;
  StageLayout stage_layout(const models::Gpt2Impl& model) const override;
  SharedParameters shared_parameters(const models::Gpt2Impl& model) const override;
  std::vector<SplitOutput> split_outputs(const models::Gpt2Impl& model) const override;
  Continuation continuation(const models::Gpt2Impl& model) const override;
  std::vector<std::string> entries_between() const override {
    return {"attention_mask", "document_ids", "position_ids"};
  }
};

}  // namespace gantry
